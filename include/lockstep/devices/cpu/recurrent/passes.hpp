/// \file
/// Recurrent layers on the CPU. The examples of a batch are independent, so each thread runs all
/// steps of its examples, up to 64 at a time, without waiting for others:
///
///     forward    each step   z = x_s kernel + h recurrent_kernel      panels.hpp
///                            gates, states, y                         one pass over units, vectorized
///     backward   each step   gradients dz of z overwrite what forward saved
///                            dh = dz recurrent_kernel', dx_s = dz kernel'
///                at the end  d_kernel = x' dz, d_recurrent_kernel = h' dz over all steps and examples
///
/// The number of vectors is padded, so that no loop over units has a rest. Invariants: results of an
/// example do not depend on the others; the terms of a weight's gradient are added in the order of
/// examples and steps; neither depends on the number of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/openmp.hpp"
#include "lockstep/devices/cpu/recurrent/lane_activation.hpp"
#include "lockstep/devices/cpu/recurrent/panels.hpp"
#include "lockstep/devices/host/recurrent/cells.hpp"
#include "lockstep/layers/recurrent/recurrent_options.hpp"

namespace lockstep {
namespace detail {

/// The passes of one recurrent op at one batch size.
template <class O, class D>
class RecurrentCalls {
 public:
  using A = ActivationOf<D>;

  /// With ForwardOnly, backward must not be called.
  template <std::same_as<ForwardOnly>... Only>
  [[gnu::cold]] RecurrentCalls(const O& op, typename D::Context& context, std::size_t count,
                               Only...)
      : threads_(context.threads()), saves_(sizeof...(Only) == 0) {
    const auto threads = static_cast<std::size_t>(threads_);
    rows_ = std::clamp<std::size_t>((count + threads - 1) / threads, 1, most_rows);
    const Sizes s(op);
    const std::size_t most_masks = op.layer.matrices(O::gates) / s.u;
    const std::size_t forward = rows_ * (s.f + (z_count + states + 1) * s.p + most_masks),
                      backward =
                          rows_ *
                          ((z_count + (op.layer.starts_at_zero() ? 1 : 2) * states + 1) * s.p +
                           2 * s.fp + most_masks),
                      weights = chunk * (s.f + s.u + 2 + panel_columns) + most_masks;
    per_thread_ = saves_ ? std::max({forward, backward, weights}) : forward;
    const std::size_t forward_shared =
                          g * (panels_size(s.f, s.u) + panels_size(s.u, s.u)) + z_count * s.p,
                      backward_shared = g * (panels_size(s.u, s.f) + panels_size(s.u, s.u)),
                      weights_shared = (s.f + s.u + 2) * g * s.p;
    shared_ = saves_ ? std::max({forward_shared, backward_shared, weights_shared}) : forward_shared;
  }

  std::size_t scratch_bytes() const {
    return (shared_ + static_cast<std::size_t>(threads_) * per_thread_) * sizeof(float);
  }
  /// Floats that forward saves of a step of an example: the sums z, then the states.
  static constexpr std::size_t saved_row(const O& op) {
    return (z_count + states) * padded_columns(op.layer.width());
  }

  void forward(const O& op, const Io<D>& io) {
    const Sizes s(op);
    float *kernels = scratch(io), *const recurrent = kernels + g * panels_size(s.f, s.u),
          *const bias = recurrent + g * panels_size(s.u, s.u);
    for (std::size_t k = 0; k < g; ++k) {
      pack_panels({io.w + k * s.u, g * s.u, 1}, s.f, s.u, kernels + k * panels_size(s.f, s.u));
      pack_panels({io.w + (s.f * g + k) * s.u, g * s.u, 1}, s.u, s.u,
                  recurrent + k * panels_size(s.u, s.u));
    }
    add_biases(op, io.w, bias);
    for_blocks(op, io, [&](Slice block, float* own) {
      forward_block(op, io, block, own, kernels, recurrent, bias);
    });
  }

  void backward(const O& op, const Io<D>& io) {
    const Sizes s(op);
    float *kernels = scratch(io), *const recurrent = kernels + g * panels_size(s.u, s.f);
    for (std::size_t k = 0; k < g; ++k) {
      pack_panels({io.w + k * s.u, 1, g * s.u}, s.u, s.f, kernels + k * panels_size(s.u, s.f));
      pack_panels({io.w + (s.f * g + k) * s.u, 1, g * s.u}, s.u, s.u,
                  recurrent + k * panels_size(s.u, s.u));
    }
    for_blocks(op, io, [&](Slice block, float* own) {
      backward_block(op, io, block, own, kernels, recurrent);
    });
    if (io.dw != nullptr) weight_gradients(op, io);
  }

 private:
  static constexpr std::size_t g = std::size_t{O::gates}, z_count = std::size_t{O::z_count},
                               states = std::size_t{O::states};
  static constexpr std::size_t most_rows = 64, chunk = 128;
  static std::size_t slot_of(std::size_t gate) {
    return static_cast<std::size_t>(O::slot_of(static_cast<int>(gate)));
  }

  struct Sizes {
    explicit Sizes(const O& op)
        : f(op.layer.features()),
          u(op.layer.width()),
          steps(op.layer.steps()),
          p(padded_columns(u)),
          fp(padded_columns(f)),
          row(saved_row(op)) {}
    std::size_t f, u, steps, p, fp, row;
  };

  static float* scratch(const Io<D>& io) { return reinterpret_cast<float*>(io.scratch); }
  static float* saved(const Io<D>& io) { return reinterpret_cast<float*>(io.saved); }

  /// Calls body(block, floats of the thread) for blocks of at most rows_ examples.
  template <class Body>
  void for_blocks(const O& op, const Io<D>& io, const Body& body) const {
    const Sizes s(op);
    const std::size_t grain = parallel_grain(s.steps * g * s.u * (s.f + s.u) / 16);
    parallel_ranges(threads_, io.step.count, grain, [&](Slice mine, std::size_t thread) {
      const std::size_t blocks = (mine.count + rows_ - 1) / rows_;
      for (std::size_t b = 0; b < blocks; ++b) {
        const Slice part = slice_of(mine.count, blocks, b);
        body(Slice{mine.first + part.first, part.count},
             scratch(io) + shared_ + thread * per_thread_);
      }
    });
  }

  /// The sum of the biases of each slot, padded with zeros.
  static void add_biases(const O& op, const float* w, float* to) {
    const Sizes s(op);
    std::fill_n(to, z_count * s.p, 0.0f);
    if (!op.layer.bias) return;
    w += op.layer.matrices(O::gates);
    for (std::size_t b = 0; b < std::size_t{O::biases}; ++b)
      for (std::size_t k = 0; k < g; ++k)
        for (std::size_t j = 0; j < s.u; ++j)
          to[(b == 0 ? k : slot_of(k)) * s.p + j] += w[(b * g + k) * s.u + j];
  }

  /// to (rows, width) = from, times the mask of each row if there is one.
  template <class From>
  static void masked(std::size_t rows, std::size_t width, const From* from, std::size_t from_row,
                     const float* mask, std::size_t mask_row, float* to, std::size_t to_row) {
    for (std::size_t r = 0; r < rows; ++r, from += from_row, to += to_row) {
      if (mask == nullptr) {
        for (std::size_t i = 0; i < width; ++i) to[i] = static_cast<float>(from[i]);
      } else {
        for (std::size_t i = 0; i < width; ++i) to[i] = static_cast<float>(from[i]) * mask[i];
        mask += mask_row;
      }
    }
  }

  /// The masks of a block of examples, or of one.
  struct BlockMasks : RecurrentMasks {
    BlockMasks(const O& op, const Io<D>& io)
        : RecurrentMasks(op.layer, O::gates, io.step.training) {}
    void draw(const Io<D>& io, Slice examples, float* to) {
      data = to;
      if (*this)
        for (std::size_t r = 0; r < examples.count; ++r)
          RecurrentMasks::draw(io, examples.first + r, to + r * size());
    }
    const float* of_x(const O& op, std::size_t gate) const {
      return !*this ? nullptr : data + (by_gate() ? gate * op.layer.features() : 0);
    }
    const float* of_h(const O& op, std::size_t gate) const {
      return !*this || !by_gate() ? nullptr : data + state() + gate * op.layer.width();
    }
    float* data = nullptr;
  };

  void forward_block(const O& op, const Io<D>& io, Slice block, float* own, const float* kernels,
                     const float* recurrent, const float* bias) const {
    const Sizes s(op);
    const std::size_t rows = block.count;
    float *const x = own, *const z = x + rows * s.f, *const h = z + rows * z_count * s.p,
                 *const masked_h = h + rows * states * s.p;
    BlockMasks masks(op, io);
    masks.draw(io, block, masked_h + rows * s.p);
    load_initial_states(op, io, block, h);
    for (std::size_t step = 0; step < s.steps; ++step) {
      const A* const in = io.x[0] + (block.first * s.steps + op.layer.time(step)) * s.f;
      for (std::size_t k = 0; k < g; ++k) {
        if (k == 0 || (masks && masks.by_gate()))
          masked(rows, s.f, in, s.steps * s.f, masks.of_x(op, k), masks.size(), x, s.f);
        multiply_panels(rows, s.f, s.u, {x, s.f, 1}, kernels + k * panels_size(s.f, s.u),
                        z + k * s.p, z_count * s.p, false);
      }
      for (std::size_t k = 0; k < g; ++k) {
        if (O::resets_before && k == 2) break;
        const float* left = h;
        if (const float* const mask = masks.of_h(op, k)) {
          masked(rows, s.u, h, s.p, mask, masks.size(), masked_h, s.p);
          left = masked_h;
        }
        multiply_panels(rows, s.u, s.u, {left, s.p, 1}, recurrent + k * panels_size(s.u, s.u),
                        z + slot_of(k) * s.p, z_count * s.p, slot_of(k) == k);
      }
      if constexpr (O::resets_before) {
        reset_pass(op, rows, z, bias, h, masks);
        multiply_panels(rows, s.u, s.u, {z + 3 * s.p, z_count * s.p, 1},
                        recurrent + 2 * panels_size(s.u, s.u), z + 2 * s.p, z_count * s.p, true);
      }
      float* const save = saves_ ? saved(io) + (block.first * s.steps + step) * s.row : nullptr;
      const A* const unpadded = unpadded_steps(op, io, block, step);
      cell_pass(op, rows, z, bias, h, unpadded, save);
      if (op.layer.return_sequences || step == s.steps - 1)
        for (std::size_t r = 0; r < rows; ++r) {
          A* const y = io.y + (block.first + r) * op.layer.row() +
                       (op.layer.return_sequences ? op.layer.output_step(step) * s.u : 0);
          const bool is_zero = op.layer.has_no_output(mask_of(op, io, block.first + r), step);
          for (std::size_t j = 0; j < s.u; ++j) y[j] = A(is_zero ? 0.0f : h[r * s.p + j]);
        }
    }
    for (std::size_t r = 0; r < rows; ++r) {
      A* to = io.y + (block.first + r) * op.layer.row() + op.layer.output().size();
      for (std::size_t k = 0; k + 1 < results(op); ++k)
        for (std::size_t j = 0; j < s.u; ++j) *to++ = A(h[(k * rows + r) * s.p + j]);
    }
  }
  /// The mask of an example; null without one.
  static const A* mask_of(const O& op, const Io<D>& io, std::size_t n) {
    return op.layer.masked ? io.x[op.layer.mask_operand()] + n * op.layer.steps() : nullptr;
  }
  static std::size_t results(const O& op) { return static_cast<std::size_t>(op.layer.results); }
  static std::size_t operands(const O& op) { return static_cast<std::size_t>(op.layer.operands); }
  /// to (states, rows, p) = the states before the first step, padded with zeros.
  static void load_initial_states(const O& op, const Io<D>& io, Slice block, float* to) {
    const Sizes s(op);
    std::fill_n(to, block.count * states * s.p, 0.0f);
    for (std::size_t k = 1; k < operands(op); ++k)
      for (std::size_t r = 0; r < block.count; ++r) {
        const A* const from = io.x[k] + (block.first + r) * s.u;
        for (std::size_t j = 0; j < s.u; ++j)
          to[((k - 1) * block.count + r) * s.p + j] = static_cast<float>(from[j]);
      }
  }

  /// The mask of a step of the block's examples, `steps` apart; null without a mask.
  static const A* unpadded_steps(const O& op, const Io<D>& io, Slice block, std::size_t step) {
    const A* const mask = mask_of(op, io, block.first);
    return mask != nullptr ? mask + op.layer.time(step) : nullptr;
  }
  static bool is_padding(const A* unpadded, std::size_t row, std::size_t steps) {
    return unpadded != nullptr && unpadded[row * steps] == A(0.0f);
  }

  /// The states after a step, from its sums; saves both.
  static void cell_pass(const O& op, std::size_t rows, const float* z, const float* bias, float* h,
                        const A* unpadded, float* save) {
    const Sizes s(op);
    run_with_any_vectors<float>(
        [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
          using V = Lanes<float, bytes.value>;
          const auto f = cell_activations<LaneActivation>(op);
          for (std::size_t r = 0; r < rows; ++r) {
            const bool pads = is_padding(unpadded, r, s.steps);
            for (std::size_t j = 0; j < s.p; j += lanes_of<float, bytes.value>) {
              V sum[z_count], state[states], b;
              for (std::size_t k = 0; k < z_count; ++k) {
                load(sum[k], z + (r * z_count + k) * s.p + j);
                if (O::resets_before && k != 2) continue;
                load(b, bias + k * s.p + j);
                sum[k] += b;
              }
              for (std::size_t k = 0; k < states; ++k) load(state[k], h + (k * rows + r) * s.p + j);
              if (pads)
                for (V& v : sum) v = V{};
              else
                O::forward(f, sum, state);
              for (std::size_t k = 0; k < states; ++k)
                store(h + (k * rows + r) * s.p + j, state[k]);
              if (save == nullptr) continue;
              float* const to = save + r * s.steps * s.row + j;
              for (std::size_t k = 0; k < z_count; ++k) store(to + k * s.p, sum[k]);
              for (std::size_t k = 0; k < states; ++k) store(to + (z_count + k) * s.p, state[k]);
            }
          }
        });
  }

  /// v = the mask's elements from j on, 1 without a mask.
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] static void load_mask(V& v, const float* mask,
                                                                            std::size_t j,
                                                                            std::size_t units) {
    v = V{} + 1.0f;
    if (mask != nullptr && j < units) load_some(v, mask + j, units - j);
  }

  /// The gates before the product with the state that the reset gate multiplies.
  static void reset_pass(const O& op, std::size_t rows, float* z, const float* bias, const float* h,
                         const BlockMasks& masks) {
    const Sizes s(op);
    const float* const mask = masks.of_h(op, 2);
    run_with_any_vectors<float>(
        [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
          using V = Lanes<float, bytes.value>;
          const auto f = cell_activations<LaneActivation>(op);
          for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t j = 0; j < s.p; j += lanes_of<float, bytes.value>) {
              V sum[z_count], before, b, factor;
              for (std::size_t k = 0; k < 2; ++k) {
                load(sum[k], z + (r * z_count + k) * s.p + j);
                load(b, bias + k * s.p + j);
                sum[k] += b;
              }
              load(before, h + r * s.p + j);
              load_mask(factor, mask ? mask + r * masks.size() : nullptr, j, s.u);
              O::reset(f, sum, before, factor);
              for (const std::size_t k : {0, 1, 3}) store(z + (r * z_count + k) * s.p + j, sum[k]);
            }
        });
  }

  void backward_block(const O& op, const Io<D>& io, Slice block, float* own, const float* kernels,
                      const float* recurrent) const {
    const Sizes s(op);
    const std::size_t rows = block.count;
    float *const d = own, *const dz = d + rows * states * s.p,
                 *const dh = dz + rows * z_count * s.p, *const dx = dh + rows * s.p,
                 *const part = dx + rows * s.fp, *const initial = part + rows * s.fp,
                 *const drawn = initial + (op.layer.starts_at_zero() ? 0 : rows * states * s.p);
    BlockMasks masks(op, io);
    masks.draw(io, block, drawn);
    if (!op.layer.starts_at_zero()) load_initial_states(op, io, block, initial);
    std::fill_n(d, rows * states * s.p, 0.0f);
    for (std::size_t r = 0; r < rows; ++r) {
      const A* from = io.dy + (block.first + r) * op.layer.row() + op.layer.output().size();
      for (std::size_t k = 0; k + 1 < results(op); ++k)
        for (std::size_t j = 0; j < s.u; ++j)
          d[(k * rows + r) * s.p + j] = static_cast<float>(*from++);
    }
    for (std::size_t step = s.steps; step-- > 0;) {
      float* const save = saved(io) + (block.first * s.steps + step) * s.row;
      const bool sequences = op.layer.return_sequences;
      const A* const dy = sequences || step == s.steps - 1
                              ? io.dy + block.first * op.layer.row() +
                                    (sequences ? op.layer.output_step(step) * s.u : 0)
                              : nullptr;
      const Before before{step == 0, op.layer.starts_at_zero() ? nullptr : initial};
      cell_backward_pass(op, io, block, step, save, before, dy, d, dz);
      if constexpr (O::resets_before) {
        multiply_panels(rows, s.u, s.u, {dz + 2 * s.p, z_count * s.p, 1},
                        recurrent + 2 * panels_size(s.u, s.u), dh, s.p, false);
        reset_backward_pass(op, rows, save, before, dh, masks, d, dz);
      }
      for (std::size_t k = 0; k < g && (step > 0 || !op.layer.starts_at_zero()); ++k) {
        if (O::resets_before && k == 2) break;
        const float* const mask = masks.of_h(op, k);
        multiply_panels(rows, s.u, s.u, {dz + slot_of(k) * s.p, z_count * s.p, 1},
                        recurrent + k * panels_size(s.u, s.u), mask ? dh : d, s.p, !mask);
        if (mask != nullptr) add_masked(rows, s.u, dh, s.p, mask, masks.size(), d);
      }
      if (io.dx[0] == nullptr) continue;
      const bool by_gate = masks && masks.by_gate();
      if (by_gate) std::fill_n(dx, rows * s.fp, 0.0f);
      for (std::size_t k = 0; k < g; ++k) {
        multiply_panels(rows, s.u, s.f, {dz + k * s.p, z_count * s.p, 1},
                        kernels + k * panels_size(s.u, s.f), by_gate ? part : dx, s.fp,
                        !by_gate && k > 0);
        if (by_gate) add_masked(rows, s.f, part, s.fp, masks.of_x(op, k), masks.size(), dx);
      }
      const float* const mask = by_gate ? nullptr : masks.of_x(op, 0);
      for (std::size_t r = 0; r < rows; ++r) {
        A* const to = io.dx[0] + ((block.first + r) * s.steps + op.layer.time(step)) * s.f;
        for (std::size_t i = 0; i < s.f; ++i)
          to[i] = A(dx[r * s.fp + i] * (mask ? mask[r * masks.size() + i] : 1.0f));
      }
    }
    for (std::size_t k = 1; k < operands(op); ++k) {
      if (io.dx[k] == nullptr) continue;
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t j = 0; j < s.u; ++j)
          io.dx[k][(block.first + r) * s.u + j] = A(d[((k - 1) * rows + r) * s.p + j]);
    }
  }

  /// to += from times the mask; rows of both are `row` floats apart.
  static void add_masked(std::size_t rows, std::size_t width, const float* from, std::size_t row,
                         const float* mask, std::size_t mask_row, float* to) {
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < width; ++i)
        to[r * row + i] += from[r * row + i] * mask[r * mask_row + i];
  }

  /// Where the states before a step are: saved by the step before it, or before the first one
  /// `initial` (states, rows, p), null for zeros.
  struct Before {
    bool is_first;
    const float* initial;

    /// v = state k of row r from unit j on; `save` is where the step's sums are for the row and unit.
    template <class V>
    [[gnu::always_inline, gnu::no_instrument_function]] void load_state(
        V& v, const float* save, const Sizes& s, std::size_t k, std::size_t rows, std::size_t r,
        std::size_t j) const {
      v = V{};
      if (!is_first)
        load(v, save - s.row + (z_count + k) * s.p);
      else if (initial != nullptr)
        load(v, initial + (k * rows + r) * s.p + j);
    }
  };

  /// The gradients of a step's sums, which replace what forward saved, and those of the states before
  /// it without the products, in d.
  static void cell_backward_pass(const O& op, const Io<D>& io, Slice block, std::size_t step,
                                 float* save, const Before& of_step, const A* dy, float* d,
                                 float* dz) {
    const Sizes s(op);
    const std::size_t rows = block.count;
    const A* const unpadded = unpadded_steps(op, io, block, step);
    run_with_any_vectors<A>([&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
      using V = Lanes<float, bytes.value>;
      const auto f = cell_activations<LaneActivation>(op);
      for (std::size_t r = 0; r < rows; ++r) {
        const bool pads = is_padding(unpadded, r, s.steps),
                   has_output = dy != nullptr &&
                                !op.layer.has_no_output(mask_of(op, io, block.first + r), step);
        for (std::size_t j = 0; j < s.p; j += lanes_of<float, bytes.value>) {
          float* const at = save + r * s.steps * s.row + j;
          V sum[z_count], before[states], after[states], gradient[states], more;
          for (std::size_t k = 0; k < z_count; ++k) load(sum[k], at + k * s.p);
          for (std::size_t k = 0; k < states; ++k) {
            of_step.load_state(before[k], at, s, k, rows, r, j);
            load(after[k], at + (z_count + k) * s.p);
            load(gradient[k], d + (k * rows + r) * s.p + j);
          }
          if (has_output && j < s.u) {
            load_some(more, dy + r * op.layer.row() + j, s.u - j);
            gradient[0] += more;
          }
          if (!pads) O::backward(f, sum, before, after, gradient);
          for (std::size_t k = 0; k < z_count; ++k) {
            store(at + k * s.p, sum[k]);
            store(dz + (r * z_count + k) * s.p + j, sum[k]);
          }
          for (std::size_t k = 0; k < states; ++k) store(d + (k * rows + r) * s.p + j, gradient[k]);
        }
      }
    });
  }

  /// Completes cell_backward_pass with dq, the gradient of the state that the reset gate multiplied.
  static void reset_backward_pass(const O& op, std::size_t rows, float* save, const Before& of_step,
                                  const float* dq, const BlockMasks& masks, float* d, float* dz) {
    const Sizes s(op);
    const float* const mask = masks.of_h(op, 2);
    run_with_any_vectors<float>(
        [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
          using V = Lanes<float, bytes.value>;
          const auto f = cell_activations<LaneActivation>(op);
          for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t j = 0; j < s.p; j += lanes_of<float, bytes.value>) {
              float* const at = save + r * s.steps * s.row + j;
              V sum[z_count], before, factor, of_q, gradient;
              load(sum[1], at + s.p);
              of_step.load_state(before, at, s, 0, rows, r, j);
              load(of_q, dq + r * s.p + j);
              load(gradient, d + r * s.p + j);
              load_mask(factor, mask ? mask + r * masks.size() : nullptr, j, s.u);
              O::reset_backward(f, sum, before, factor, of_q, gradient);
              store(at + s.p, sum[1]);
              store(dz + (r * z_count + 1) * s.p + j, sum[1]);
              store(d + r * s.p + j, gradient);
            }
        });
  }

  /// One matrix of the weights and a row of biases.
  struct Part {
    bool of_x;
    std::size_t first, rows;  // of `sums`
  };

  /// d_kernel = x' dz and d_recurrent_kernel = h' dz, and the biases as rows for a constant input of 1.
  /// Each thread computes a range of rows.
  void weight_gradients(const O& op, const Io<D>& io) const {
    const Sizes s(op);
    float* const sums = scratch(io);  // (f + 1 + u + 1, g, p), without the rows of absent biases
    const std::size_t x_rows = s.f + (op.layer.bias ? 1 : 0),
                      h_rows = s.u + (op.layer.bias && O::biases == 2 ? 1 : 0);
    if (io.step.count == 0) return (void)std::fill_n(io.dw, op.weights(), 0.0f);
    parallel_ranges(threads_, x_rows + h_rows, column_step, [&](Slice mine, std::size_t thread) {
      float* const own = scratch(io) + shared_ + thread * per_thread_;
      const std::size_t end = mine.first + mine.count;
      if (mine.first < x_rows)
        gradient_rows(op, io, {true, 0, s.f}, {mine.first, std::min(end, x_rows) - mine.first}, own,
                      sums);
      const std::size_t first = std::max(mine.first, x_rows);
      if (first < end)
        gradient_rows(op, io, {false, x_rows, s.u}, {first - x_rows, end - first}, own, sums);
    });
    float* dw = io.dw;
    const auto copy = [&](std::size_t row) {
      for (std::size_t k = 0; k < g; ++k, dw += s.u)
        std::copy_n(sums + (row * g + k) * s.p, s.u, dw);
    };
    for (std::size_t i = 0; i < s.f; ++i) copy(i);
    for (std::size_t i = 0; i < s.u; ++i) copy(x_rows + i);
    if (x_rows > s.f) copy(s.f);
    if (h_rows > s.u) copy(x_rows + s.u);
  }

  /// Rows `mine` of a part, over chunks of the steps of all examples.
  void gradient_rows(const O& op, const Io<D>& io, const Part& matrix, Slice mine, float* own,
                     float* sums) const {
    const Sizes s(op);
    BlockMasks masks(op, io);
    float *const left = own, *const panel = left + chunk * mine.count,
                 *const mask = panel + chunk * panel_columns;
    const std::size_t all = io.step.count * s.steps;
    const bool by_gate = masks && masks.by_gate();
    for (std::size_t first = 0; first < all; first += chunk) {
      const std::size_t depth = std::min(chunk, all - first);
      for (std::size_t k = 0; k < g; ++k) {
        const bool resets = !matrix.of_x && O::resets_before && k == 2;
        if (k == 0 || by_gate || resets)
          left_rows(op, io, matrix, mine, {first, depth}, k, masks, mask, left);
        const float* const dz = saved(io) + first * s.row + (matrix.of_x ? k : slot_of(k)) * s.p;
        for (std::size_t j = 0; j < s.p; j += panel_columns) {
          const std::size_t width = std::min(panel_columns, s.p - j);
          pack_panels({dz + j, s.row, 1}, depth, width, panel);
          multiply_panels(mine.count, depth, width, {left, 1, mine.count}, panel,
                          sums + ((matrix.first + mine.first) * g + k) * s.p + j, g * s.p,
                          first > 0);
        }
      }
    }
  }

  /// left (steps, mine): what the rows `mine` of a matrix multiply in these steps, counted over all
  /// examples; 1 for the bias.
  static void left_rows(const O& op, const Io<D>& io, const Part& matrix, Slice mine, Slice steps,
                        std::size_t gate, BlockMasks& masks, float* drawn, float* left) {
    const Sizes s(op);
    const std::size_t width = std::min(mine.count, matrix.rows - std::min(mine.first, matrix.rows));
    for (std::size_t m = steps.first; m < steps.first + steps.count; ++m, left += mine.count) {
      const std::size_t n = m / s.steps, step = m % s.steps;
      if (masks && (step == 0 || m == steps.first)) masks.draw(io, {n, 1}, drawn);
      left[mine.count - 1] = 1;  // if the last row is the bias
      if (matrix.of_x) {
        const float* const mask = masks.of_x(op, gate);
        masked(1, width, io.x[0] + (n * s.steps + op.layer.time(step)) * s.f + mine.first, 0,
               mask ? mask + mine.first : nullptr, 0, left, 0);
      } else if (O::resets_before && gate == 2) {
        std::copy_n(saved(io) + m * s.row + 3 * s.p + mine.first, width, left);
      } else if (step == 0 && op.layer.starts_at_zero()) {
        std::fill_n(left, width, 0.0f);
      } else if (step == 0) {
        const float* const mask = masks.of_h(op, gate);
        masked(1, width, io.x[1] + n * s.u + mine.first, 0, mask ? mask + mine.first : nullptr, 0,
               left, 0);
      } else {
        const float* const mask = masks.of_h(op, gate);
        masked(1, width, saved(io) + (m - 1) * s.row + z_count * s.p + mine.first, 0,
               mask ? mask + mine.first : nullptr, 0, left, 0);
      }
    }
  }

  int threads_ = 1;
  bool saves_ = true;
  std::size_t rows_ = 0;                     // examples of a block at most
  std::size_t shared_ = 0, per_thread_ = 0;  // floats of scratch
};

}  // namespace detail

template <detail::IsRecurrent O, class P>
struct Kernel<O, BasicCpu<P>>
    : PreparedKernel<O, BasicCpu<P>, detail::RecurrentCalls<O, BasicCpu<P>>> {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true, skips_dw = true;
  static constexpr std::size_t saved(const O& op) {
    return op.layer.steps() * detail::RecurrentCalls<O, BasicCpu<P>>::saved_row(op) * sizeof(float);
  }
};

}  // namespace lockstep
