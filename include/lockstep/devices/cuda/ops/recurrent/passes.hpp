/// \file
/// LSTM, GRU and SimpleRNN on a GPU. Products go to cuBLASLt, or to lockstep's own kernel:
///
///     forward    all steps   z = x kernel
///                each step   h recurrent_kernel, then gates, states, y: one thread per unit
///     backward   each step   dz and the gradients of the states: one thread per unit,
///                            then dz recurrent_kernel'
///                at the end  dx = dz kernel', d_kernel = x' dz, d_recurrent_kernel = h' dz
///
/// Invariants: a padded step repeats the state, and its dz is 0; states are float, sums z are
/// activations; a product covers as many gates as have the same left operand, a block.
///
///     saved:  [ h: steps + 1, examples, units | states in float | z | z[3], or the reset state ]
///     z:      for each block  [ examples, steps, gates of the block, units ]
///     dz of the recurrent product: for each block  [ steps, examples, gates of the block, units ]
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/ops/dropout.hpp"
#include "lockstep/devices/cuda/ops/recurrent/cells.hpp"
#include "lockstep/devices/cuda/support/activations.hpp"
#include "lockstep/devices/cuda/support/column_sums.hpp"
#include "lockstep/devices/cuda/support/dense_pass.hpp"
#include "lockstep/devices/cuda/support/philox.hpp"
#include "lockstep/layers/recurrent/recurrent_options.hpp"

namespace lockstep {

namespace detail::cuda {

/// BY_GATE: each gate has masks of dropout of its own, and is a block. RESETS_BEFORE: the last gate
/// is a block of the recurrent product. Z: sums per unit. EXTRA: z[3] is saved, or the state times
/// the reset gate. MASKS: numbers of dropout per example, of which the state's begin at STATE_MASKS.
inline constexpr char recurrent_text[] = R"cuda(
__device__ inline int time_of(int s) { return GO_BACKWARDS ? STEPS - 1 - s : s; }
// Element 0 of a gate in row `row` of `rows`, of the input's sums and of the recurrent ones.
__device__ inline i64 input_at(int gate, i64 row, i64 rows) {
  return BY_GATE ? (gate * rows + row) * UNITS : (row * GATES + gate) * UNITS;
}
__device__ inline i64 state_at(int gate, i64 row, i64 rows) {
#if BY_GATE
  return (gate * rows + row) * UNITS;
#elif RESETS_BEFORE
  return gate == 2 ? (2 * rows + row) * UNITS : (row * 2 + gate) * UNITS;
#else
  return (row * GATES + gate) * UNITS;
#endif
}
__device__ inline float state_factor(const float* masks, i64 n, int gate, int j) {
  return BY_GATE && masks ? masks[n * MASKS + STATE_MASKS + gate * UNITS + j] : 1.0f;
}
// z of a gate: the input's sum, the recurrent one unless null, and the bias.
__device__ inline float sum_of(const A* z, const A* products, const float* bias, i64 n, int gate,
                               int j, i64 row, i64 count) {
  float sum = get(z[input_at(gate, row, count * STEPS) + j]);
  if (products) sum += get(products[state_at(gate, n, count) + j]);
#if BIASES
  sum += bias[gate * UNITS + j];
#endif
#if BIASES == 2
  sum += bias[(GATES + gate) * UNITS + j];
#endif
  return sum;
}

// `states` has STATES arrays (steps + 1, count, units). `y` is null if this step has no output.
KERNEL(forward_step)(A* z, const A* products, const float* bias, A* h, float* states, A* extra,
                     A* y, const A* mask, int s, i64 count) {
  const i64 all = count * UNITS, array = (STEPS + 1) * all;
  FOR_EACH(i, all) {
    const i64 n = i / UNITS, row = n * STEPS + time_of(s);
    const int j = (int)(i - n * UNITS);
    const i64 place = s * all + i;
    const bool pads = mask && get(mask[row]) == 0;
    float state[STATES];
    for (int k = 0; k < STATES; ++k) state[k] = states[k * array + place];
    if (!pads) {
      float v[Z];
      for (int gate = RESETS_BEFORE ? 2 : 0; gate < GATES; ++gate)
        v[gate] = sum_of(z, products, bias, n, gate, j, row, count);
#if RESETS_BEFORE
      for (int gate = 0; gate < 2; ++gate)
        v[gate] = get(z[input_at(gate, row, count * STEPS) + j]);
#elif EXTRA
      // The candidate's recurrent sum is multiplied by the reset gate.
      v[2] = get(z[input_at(2, row, count * STEPS) + j]);
      v[3] = products ? get(products[state_at(2, n, count) + j]) : 0.0f;
#if BIASES
      v[2] += bias[2 * UNITS + j];
      v[3] += bias[5 * UNITS + j];
#endif
      extra[place] = put<A>(v[3]);
#endif
      cell_forward(v, state);
      for (int gate = RESETS_BEFORE ? 2 : 0; gate < GATES; ++gate)
        z[input_at(gate, row, count * STEPS) + j] = put<A>(v[gate]);
    }
    for (int k = 0; k < STATES; ++k) states[k * array + place + all] = state[k];
#if ACTIVATION
    h[place + all] = put<A>(state[0]);
#endif
    if (!y) continue;
    const i64 to = RETURN_SEQUENCES ? n * STEPS + (IN_ORDER ? time_of(s) : s) : n;
    y[to * UNITS + j] = put<A>(pads && ZERO_OUTPUT ? 0.0f : state[0]);
  }
}

// z: what forward kept, then dz. `products`: the gradients of h by the recurrent products of step s +
// 1, or null. `d`: those of the states, STATES arrays (count, units).
KERNEL(backward_step)(A* z, A* dz, const A* products, const float* states, const A* extra, float* d,
                      const A* dy, const float* masks, const A* mask, int s, i64 count) {
  const i64 all = count * UNITS, array = (STEPS + 1) * all;
  FOR_EACH(i, all) {
    const i64 n = i / UNITS, row = n * STEPS + time_of(s), own = s * count + n;
    const int j = (int)(i - n * UNITS);
    const i64 place = s * all + i;
    const bool pads = mask && get(mask[row]) == 0;
    float g[STATES], before[STATES], after[STATES];
    for (int k = 0; k < STATES; ++k) {
      g[k] = d[k * all + i];
      before[k] = states[k * array + place];
      after[k] = states[k * array + place + all];
    }
    if (products)
      for (int block = 0; block < STATE_PRODUCTS; ++block)
        g[0] += get(products[block * all + i]) * state_factor(masks, n, block, j);
    if (dy && !(pads && ZERO_OUTPUT)) {
      const i64 from = RETURN_SEQUENCES ? n * STEPS + (IN_ORDER ? time_of(s) : s) : n;
      g[0] += get(dy[from * UNITS + j]);
    }
    float v[Z];
    for (int gate = 0; gate < GATES; ++gate)
      v[gate] = pads ? 0.0f : get(z[input_at(gate, row, count * STEPS) + j]);
#if EXTRA
    v[3] = pads ? 0.0f : get(extra[place]);
#endif
    if (!pads) cell_backward(v, before, after, g);
    for (int k = 0; k < STATES; ++k) d[k * all + i] = g[k];
    for (int gate = 0; gate < GATES; ++gate) {
      if (RESETS_BEFORE && gate == 1 && !pads) continue;  // reset_backward_step reads z[1]
      z[input_at(gate, row, count * STEPS) + j] = put<A>(v[gate]);
      dz[state_at(gate, own, count * STEPS) + j] =
          put<A>(v[EXTRA && !RESETS_BEFORE && gate == 2 ? 3 : gate]);
    }
  }
}
)cuda";

/// The kernels of a GRU that resets the state before its product.
inline constexpr char reset_text[] = R"cuda(
// The gates, and `extra`: the state times the reset gate, times the mask of the last gate.
KERNEL(reset_step)(A* z, const A* products, const float* bias, const float* states, A* extra,
                   const float* masks, const A* mask, int s, i64 count) {
  FOR_EACH(i, count * UNITS) {
    const i64 n = i / UNITS, row = n * STEPS + time_of(s);
    const int j = (int)(i - n * UNITS);
    const i64 place = s * count * UNITS + i;
    if (mask && get(mask[row]) == 0) {
      extra[place] = put<A>(0.0f);
      continue;
    }
    float v[Z];
    for (int gate = 0; gate < 2; ++gate)
      v[gate] = sum_of(z, products, bias, n, gate, j, row, count);
    reset(v, states[place], state_factor(masks, n, 2, j));
    for (int gate = 0; gate < 2; ++gate)
      z[input_at(gate, row, count * STEPS) + j] = put<A>(v[gate]);
    extra[place] = put<A>(v[3]);
  }
}

// `dq`: the gradient of `extra` of reset_step.
KERNEL(reset_backward_step)(A* z, A* dz, const A* dq, const float* states, float* d,
                            const float* masks, const A* mask, int s, i64 count) {
  FOR_EACH(i, count * UNITS) {
    const i64 n = i / UNITS, row = n * STEPS + time_of(s), own = s * count + n;
    const int j = (int)(i - n * UNITS);
    if (mask && get(mask[row]) == 0) continue;
    const i64 place = input_at(1, row, count * STEPS) + j;
    float v[Z];
    v[1] = get(z[place]);
    reset_backward(v, states[s * count * UNITS + i], state_factor(masks, n, 2, j), get(dq[i]),
                   d + i);
    z[place] = put<A>(v[1]);
    dz[state_at(1, own, count * STEPS) + j] = put<A>(v[1]);
  }
}
)cuda";

template <bool resets>
constexpr auto recurrent_kernels() {
  if constexpr (resets)
    return JoinedText(recurrent_text, reset_text);
  else
    return JoinedText(recurrent_text);
}
/// The text of an op's kernels.
template <class O>
inline constexpr auto recurrent_kernels_of = recurrent_kernels<O::resets_before>();

/// Masks of dropout, and weights of blocks of gates.
inline constexpr Source recurrent_operands_source{"recurrent_operands", R"cuda(
#define GROUPS ((MASKS + 3) / 4)
KERNEL(draw_masks)(float* masks, Stream stream, i64 count) {
  FOR_EACH(q, count * GROUPS) {
    const i64 n = q / GROUPS;
    const int first = (int)(q - n * GROUPS) * 4;
    const u32x4 words = block_of_words(stream, n, first / 4);
    for (int k = 0; k < 4 && first + k < MASKS; ++k) {
      const bool of_input = first + k < STATE_MASKS;
      masks[n * MASKS + first + k] =
          words.word[k] >= (of_input ? THRESHOLD : STATE_THRESHOLD) ? (of_input ? KEPT : STATE_KEPT)
                                                                    : 0.0f;
    }
  }
}
// x of each block; rows are examples x steps.
KERNEL(mask_inputs)(const A* x, const float* masks, A* to, i64 rows) {
  FOR_EACH(i, rows * FEATURES * BLOCKS) {
    const i64 at = i % (rows * FEATURES), n = at / FEATURES / STEPS;
    const int block = (int)(i / (rows * FEATURES));
    to[i] = put<A>(get(x[at]) * masks[n * MASKS + block * FEATURES + at % FEATURES]);
  }
}
// h of each gate; rows are steps x examples.
KERNEL(mask_states)(const A* h, const float* masks, A* to, i64 rows, i64 count) {
  FOR_EACH(i, rows * UNITS * GATES) {
    const i64 at = i % (rows * UNITS), n = at / UNITS % count;
    const int gate = (int)(i / (rows * UNITS));
    to[i] = put<A>(get(h[at]) * masks[n * MASKS + STATE_MASKS + gate * UNITS + at % UNITS]);
  }
}
// dx is the sum over blocks, times their masks unless these are null. It may be the only part.
KERNEL(add_inputs)(const A* parts, const float* masks, A* dx, i64 rows) {
  FOR_EACH(i, rows * FEATURES) {
    const i64 n = i / FEATURES / STEPS;
    float sum = 0;
    for (int block = 0; block < BLOCKS; ++block)
      sum += get(parts[block * rows * FEATURES + i]) *
             (masks ? masks[n * MASKS + block * FEATURES + i % FEATURES] : 1.0f);
    dx[i] = put<A>(sum);
  }
}
)cuda"};

/// The columns [first, first + width) of a matrix, `pitch` apart, and back.
inline constexpr Source columns_source{"columns_of_gates", R"cuda(
KERNEL(pack_columns)(const float* from, float* to, int first, int width, int pitch, i64 n) {
  FOR_EACH(i, n) to[i] = from[i / width * pitch + first + i % width];
}
KERNEL(unpack_columns)(const float* from, float* to, int first, int width, int pitch, i64 n) {
  FOR_EACH(i, n) to[i / width * pitch + first + i % width] = from[i];
}
)cuda"};

/// Consecutive gates with the same left operand in a product.
struct GateBlock {
  int first, gates;
};

/// The products of one matrix, kernel or recurrent kernel, by blocks of gates.
template <class Precision>
class GateProducts {
  struct Part {
    GateBlock block;
    DenseOp op;
    DenseStep<Precision> y, dx, dw;
    ColumnSums<Precision> sums;
    std::size_t weights, packed;  // offsets in scratch
  };

 public:
  using A = typename Precision::activation;

  GateProducts() = default;
  /// Matrix (inputs, gates * units). `at_once`: rows of y and dx, of which a pass has `all`. Without
  /// `trains`, forward alone. `sums`: `gradients` also has that of a bias.
  GateProducts(CudaContext& context, int inputs, int units, int gates,
               const std::vector<GateBlock>& blocks, std::size_t at_once, std::size_t all,
               bool trains, bool sums)
      : units_(units), pitch_(gates * units) {
    const bool repeats = at_once < all;  // then all calls but the first find the weights packed
    for (const GateBlock& block : blocks) {
      const DenseOp op{inputs, block.gates * units, false};
      Part part{block, op, {}, {}, {}, {}, 0, 0};
      part.y = {op, context, at_once, DensePass::forward, false, repeats};
      if (trains) {
        part.dx = {op, context, at_once, DensePass::backward_data, false, repeats};
        part.dw = {op, context, all, DensePass::backward_weights};
        if (sums) part.sums = {context, static_cast<std::int64_t>(all), op.units};
      }
      parts_.push_back(std::move(part));
    }
  }

  std::size_t blocks() const { return parts_.size(); }
  const GateBlock& block(std::size_t b) const { return parts_[b].block; }
  /// Scratch of one product.
  std::size_t scratch_bytes() const {
    std::size_t most = 0;
    for (const Part& p : parts_)
      most = std::max({most, p.y.scratch_bytes(), p.dx.scratch_bytes(), p.dw.scratch_bytes(),
                       p.sums.scratch_bytes()});
    return most;
  }
  /// Reserves memory for the weights of blocks, and for the gradient of one: add(bytes) returns an
  /// offset.
  template <class Add>
  void reserve(const Add& add) {
    std::size_t most = 0;
    for (Part& p : parts_) {
      p.weights = add(p.op.kernel_size() * sizeof(float));
      p.packed = add(DenseStep<Precision>::packed_bytes(p.op));
      most = std::max(most, p.op.kernel_size() * sizeof(float));
    }
    gradient_ = add(parts_.size() > 1 ? most : 0);
  }

  /// The weights of one pass, in scratch where blocks need it.
  class Weights {
   public:
    Weights(const GateProducts& products, CudaContext& context, const float* w, std::byte* scratch,
            std::byte* workspace)
        : products_(products), context_(context), scratch_(scratch), workspace_(workspace) {
      for (const Part& p : products.parts_) {
        const bool is_direct = products.parts_.size() == 1 &&
                               reinterpret_cast<std::uintptr_t>(w) % LtMatmul::alignment == 0;
        float* const own = reinterpret_cast<float*>(scratch + p.weights);
        if (!is_direct) products.move_columns(context, "pack_columns", p, w, own);
        at_.push_back({is_direct ? w : own, false});
      }
    }
    /// out = left * weights of block b.
    void forward(std::size_t b, const A* left, A* out) {
      const Part& p = products_.parts_[b];
      p.y.forward(context_, left, at_[b].weights, out, workspace_, packed(b, p, p.y));
    }
    /// out = left * transposed weights of block b.
    void backward(std::size_t b, const A* left, A* out) {
      const Part& p = products_.parts_[b];
      p.dx.backward_data(context_, left, at_[b].weights, out, workspace_, packed(b, p, p.dx));
    }

   private:
    struct Place {
      const float* weights;
      bool ready;
    };
    /// The first call of cuBLASLt packs.
    PackedWeights packed(std::size_t b, const Part& p, const DenseStep<Precision>& pass) {
      return {scratch_ + p.packed, std::exchange(at_[b].ready, pass.by_cublaslt())};
    }
    const GateProducts& products_;
    CudaContext& context_;
    std::byte *scratch_, *workspace_;
    std::vector<Place> at_;
  };

  /// The gradient of block b, in dw (inputs, all gates * units), and of its bias unless null.
  void gradients(CudaContext& context, std::size_t b, const A* left, const A* dz, float* dw,
                 float* d_bias, std::byte* scratch, std::byte* workspace) const {
    const Part& p = parts_[b];
    float* const own = parts_.size() == 1 ? dw : reinterpret_cast<float*>(scratch + gradient_);
    p.dw.backward_weights(context, left, dz, own, workspace);
    if (own != dw) move_columns(context, "unpack_columns", p, own, dw);
    if (d_bias != nullptr) p.sums(context, dz, d_bias + p.block.first * units_, workspace);
  }

 private:
  void move_columns(CudaContext& context, const char* entry, const Part& p, const float* from,
                    float* to) const {
    const std::size_t n = p.op.kernel_size();
    context.launch(context.kernel(columns_source, entry, {}), Grid::over(n), from, to,
                   p.block.first * units_, p.op.units, pitch_, static_cast<std::int64_t>(n));
  }

  int units_ = 0, pitch_ = 0;
  std::size_t gradient_ = 0;  // offset in scratch
  std::vector<Part> parts_;
};

/// The passes of one recurrent op at one batch size.
template <class O, class Precision>
class RecurrentCalls {
 public:
  using D = BasicCuda<Precision>;
  using A = ActivationOf<D>;

  /// With ForwardOnly, backward must not be called.
  template <std::same_as<ForwardOnly>... Only>
  RecurrentCalls(const O& op, CudaContext& context, std::size_t count, Only...)
      : sizes_(op, count) {
    constexpr bool trains = sizeof...(Only) == 0;
    const Sizes& s = sizes_;
    if (count == 0) return;
    const RecurrentLayer& layer = op.layer;
    if (layer.results > 1 || layer.operands > 1)
      throw UsageError(
          "cuda: recurrent layers have no return_state and no initial_state; train this network "
          "on ls::Cpu");
    const std::size_t rows = count * s.steps;
    inputs_ = {context, layer.in[1], layer.units, O::gates,  blocks(op, false),
               rows,    rows,        trains,      layer.bias};
    states_ = {context,  layer.units,      layer.units,
               O::gates, blocks(op, true), count,
               rows,     trains,           layer.bias && O::biases == 2};
    find_kernels(op, context);
    const auto add = [this](std::size_t bytes) {
      const std::size_t offset = bytes_;
      bytes_ += (bytes + 255) / 256 * 256;
      return offset;
    };
    inputs_.reserve(add);
    states_.reserve(add);
    workspace_ = add(std::max(inputs_.scratch_bytes(), states_.scratch_bytes()));
    products_ = add(count * s.g * s.u * sizeof(A));
    if (drops(op)) {
      masks_ = add(count * s.masks * sizeof(float));
      masked_x_ = add(inputs_.blocks() * rows * s.f * sizeof(A));
    }
    if (by_gate(op)) masked_h_ = add(s.g * (trains ? rows : count) * s.u * sizeof(A));
    if (!trains) return;
    dz_ = add(rows * s.g * s.u * sizeof(A));
    d_ = add(O::states * count * s.u * sizeof(float));
    dq_ = add(count * s.u * sizeof(A));
    if (by_gate(op)) dx_ = add(inputs_.blocks() * rows * s.f * sizeof(A));
  }
  std::size_t scratch_bytes() const { return bytes_; }

  /// Bytes per example from forward to backward.
  static constexpr std::size_t saved(const O& op) {
    std::size_t bytes = 0;
    for (const std::size_t part : saved_parts(op)) bytes += part;
    return bytes;
  }

  void forward(const O& op, const Io<D>& io) const {
    const std::size_t count = io.step.count;
    if (count == 0) return;
    const Sizes& s = sizes_;
    auto& context = io.device;
    const Saved saved(op, io.saved, count);
    A* const products = at<A>(io, products_);
    const float* const masks = draw_masks(op, io);
    const auto n = static_cast<std::int64_t>(count);
    const A* const x = masked_inputs(io, masks);
    {
      Weights weights(inputs_, context, io.w, io.scratch, io.scratch + workspace_);
      for (std::size_t b = 0; b < inputs_.blocks(); ++b)
        weights.forward(b, block_of(x, masks != nullptr, b, count * s.steps * s.f),
                        saved.z + gates_before(inputs_, b) * count * s.steps * s.u);
    }
    clear(context, saved.h, count * s.u);
    for (std::size_t k = 0; k < O::states; ++k)
      if (saved.states + k * (s.steps + 1) * count * s.u != reinterpret_cast<float*>(saved.h))
        clear(context, saved.states + k * (s.steps + 1) * count * s.u, count * s.u);
    Weights weights(states_, context, io.w + s.f * s.g * s.u, io.scratch, io.scratch + workspace_);
    const float* const bias = io.w + op.layer.matrices(O::gates);
    const A* const mask = op.layer.masked ? io.x[op.layer.mask_operand()] : nullptr;
    const Grid grid = Grid::over(count * s.u);
    for (std::size_t step = 0; step < s.steps; ++step) {
      // The state before the first step is 0, and so are its products.
      const bool has_products = step > 0;
      const A* h = saved.h + step * count * s.u;
      const bool masks_h = by_gate(op) && masks != nullptr;
      if (has_products && masks_h) h = masked_states(io, h, masks, count);
      const auto multiply = [&](std::size_t b) {
        if (has_products)
          weights.forward(b, block_of(h, masks_h, b, count * s.u),
                          products + gates_before(states_, b) * count * s.u);
      };
      const A* const sums = has_products ? products : nullptr;
      const int number = static_cast<int>(step);
      const bool has_output = op.layer.return_sequences || step + 1 == s.steps;
      const std::size_t before = states_.blocks() - (O::resets_before ? 1 : 0);
      for (std::size_t b = 0; b < before; ++b) multiply(b);
      if constexpr (O::resets_before) {
        context.launch(reset_, grid, saved.z, sums, bias, saved.states, saved.extra, masks, mask,
                       number, n);
        if (has_products)
          weights.forward(before, saved.extra + step * count * s.u,
                          products + gates_before(states_, before) * count * s.u);
      }
      context.launch(forward_, grid, saved.z, sums, bias, saved.h, saved.states, saved.extra,
                     has_output ? io.y : nullptr, mask, number, n);
    }
  }

  void backward(const O& op, const Io<D>& io) const {
    const std::size_t count = io.step.count;
    auto& context = io.device;
    if (count == 0) {
      if (io.dw != nullptr) clear(context, io.dw, op.weights());
      return;
    }
    const Sizes& s = sizes_;
    const Saved saved(op, io.saved, count);
    const std::size_t rows = count * s.steps;
    A *const products = at<A>(io, products_), *const dz = at<A>(io, dz_),
             *const dq = at<A>(io, dq_);
    float* const d = at<float>(io, d_);
    const float* const masks = draw_masks(op, io);
    const A* const mask = op.layer.masked ? io.x[op.layer.mask_operand()] : nullptr;
    const auto n = static_cast<std::int64_t>(count);
    const Grid grid = Grid::over(count * s.u);
    clear(context, d, O::states * count * s.u);
    {
      Weights weights(states_, context, io.w + s.f * s.g * s.u, io.scratch,
                      io.scratch + workspace_);
      const auto dz_of = [&](std::size_t b, std::size_t step) {
        const auto width = static_cast<std::size_t>(states_.block(b).gates) * s.u;
        return dz + gates_before(states_, b) * rows * s.u + step * count * width;
      };
      const std::size_t direct = states_.blocks() - (O::resets_before ? 1 : 0);
      for (std::size_t step = s.steps; step-- > 0;) {
        const int number = static_cast<int>(step);
        const bool has_output = op.layer.return_sequences || step + 1 == s.steps;
        context.launch(backward_, grid, saved.z, dz, step + 1 < s.steps ? products : nullptr,
                       saved.states, saved.extra, d, has_output ? io.dy : nullptr, masks, mask,
                       number, n);
        if constexpr (O::resets_before) {
          weights.backward(direct, dz_of(direct, step), dq);
          context.launch(reset_backward_, grid, saved.z, dz, dq, saved.states, d, masks, mask,
                         number, n);
        }
        if (step == 0) break;
        for (std::size_t b = 0; b < direct; ++b)
          weights.backward(b, dz_of(b, step), products + b * count * s.u);
      }
    }
    if (io.dw != nullptr) weight_gradients(op, io, saved, masks, dz);
    if (io.dx[0] != nullptr) input_gradient(op, io, saved, masks);
  }

 private:
  using Weights = typename GateProducts<Precision>::Weights;

  struct Sizes {
    Sizes(const O& op, std::size_t examples)
        : count(examples),
          u(op.layer.width()),
          f(op.layer.features()),
          steps(op.layer.steps()),
          g(std::size_t{O::gates}),
          state_masks((by_gate(op) ? g : 1) * f),
          masks(state_masks + (by_gate(op) ? g * u : 0)) {}
    std::size_t count, u, f, steps, g, state_masks, masks;
  };
  /// Whether each gate has masks of its own.
  static constexpr bool by_gate(const O& op) { return op.layer.recurrent_dropout > 0; }
  static constexpr bool drops(const O& op) { return op.layer.dropout > 0 || by_gate(op); }
  static constexpr bool has_extra = O::z_count > O::gates;

  static std::vector<GateBlock> blocks(const O& op, bool of_state) {
    std::vector<GateBlock> all;
    if (by_gate(op))
      for (int gate = 0; gate < O::gates; ++gate) all.push_back({gate, 1});
    else if (of_state && O::resets_before)
      all = {{0, O::gates - 1}, {O::gates - 1, 1}};
    else
      all = {{0, O::gates}};
    return all;
  }
  static std::size_t gates_before(const GateProducts<Precision>& products, std::size_t b) {
    return static_cast<std::size_t>(products.block(b).first);
  }

  /// Bytes per example of h, the states in float, z and `extra`, each a multiple of 16. In float h
  /// is the first of the states.
  static constexpr std::array<std::size_t, 4> saved_parts(const O& op) {
    const std::size_t u = op.layer.width(), steps = op.layer.steps();
    const auto rounded = [](std::size_t bytes) { return (bytes + 15) / 16 * 16; };
    return {is_float ? 0 : rounded((steps + 1) * u * sizeof(A)),
            rounded(O::states * (steps + 1) * u * sizeof(float)),
            rounded(O::gates * steps * u * sizeof(A)),
            has_extra ? rounded(steps * u * sizeof(A)) : 0};
  }
  static constexpr bool is_float = std::same_as<A, float>;

  struct Saved {
    Saved(const O& op, std::byte* p, std::size_t count) {
      const auto parts = saved_parts(op);
      states = reinterpret_cast<float*>(p + count * parts[0]);
      h = reinterpret_cast<A*>(p);
      z = reinterpret_cast<A*>(p + count * (parts[0] + parts[1]));
      extra = reinterpret_cast<A*>(p + count * (parts[0] + parts[1] + parts[2]));
    }
    A *h, *z, *extra;
    float* states;
  };

  template <class T>
  static T* at(const Io<D>& io, std::size_t offset) {
    return reinterpret_cast<T*>(io.scratch + offset);
  }
  template <class T>
  static void clear(CudaContext& context, T* p, std::size_t n) {
    context.clear(reinterpret_cast<std::byte*>(p), n * sizeof(T));
  }
  /// The operand of block b: one for each if they are masked, otherwise the same.
  static const A* block_of(const A* p, bool masked, std::size_t b, std::size_t size) {
    return masked ? p + b * size : p;
  }

  /// The masks of this step, or null.
  const float* draw_masks(const O& op, const Io<D>& io) const {
    if (!drops(op) || !io.step.training) return nullptr;
    float* const masks = at<float>(io, masks_);
    io.device.launch(draw_, Grid::over(sizes_.count * ((sizes_.masks + 3) / 4)), masks,
                     stream_of(io), static_cast<std::int64_t>(sizes_.count));
    return masks;
  }
  /// x, or x times the mask of each block.
  const A* masked_inputs(const Io<D>& io, const float* masks) const {
    if (masks == nullptr) return io.x[0];
    const std::size_t rows = sizes_.count * sizes_.steps;
    A* const to = at<A>(io, masked_x_);
    io.device.launch(mask_inputs_, Grid::over(rows * sizes_.f * inputs_.blocks()), io.x[0], masks,
                     to, static_cast<std::int64_t>(rows));
    return to;
  }
  /// `rows` rows of h times the mask of each gate.
  const A* masked_states(const Io<D>& io, const A* h, const float* masks, std::size_t rows) const {
    A* const to = at<A>(io, masked_h_);
    io.device.launch(mask_states_, Grid::over(rows * sizes_.u * sizes_.g), h, masks, to,
                     static_cast<std::int64_t>(rows), static_cast<std::int64_t>(sizes_.count));
    return to;
  }

  void weight_gradients(const O& op, const Io<D>& io, const Saved& saved, const float* masks,
                        const A* dz) const {
    const Sizes& s = sizes_;
    auto& context = io.device;
    const std::size_t rows = s.count * s.steps;
    std::byte* const workspace = io.scratch + workspace_;
    float *const d_recurrent = io.dw + s.f * s.g * s.u,
                 *const d_bias = op.layer.bias ? io.dw + op.layer.matrices(O::gates) : nullptr,
                 *const d_state_bias =
                     d_bias != nullptr && O::biases == 2 ? d_bias + s.g * s.u : nullptr;
    const A* const x = masked_inputs(io, masks);
    for (std::size_t b = 0; b < inputs_.blocks(); ++b)
      inputs_.gradients(context, b, block_of(x, masks != nullptr, b, rows * s.f),
                        saved.z + gates_before(inputs_, b) * rows * s.u, io.dw, d_bias, io.scratch,
                        workspace);
    const bool masks_h = by_gate(op) && masks != nullptr;
    const A* const h = masks_h ? masked_states(io, saved.h, masks, rows) : saved.h;
    for (std::size_t b = 0; b < states_.blocks(); ++b) {
      const bool resets = O::resets_before && b + 1 == states_.blocks();
      states_.gradients(context, b, resets ? saved.extra : block_of(h, masks_h, b, rows * s.u),
                        dz + gates_before(states_, b) * rows * s.u, d_recurrent, d_state_bias,
                        io.scratch, workspace);
    }
  }
  void input_gradient(const O& op, const Io<D>& io, const Saved& saved, const float* masks) const {
    const Sizes& s = sizes_;
    const std::size_t rows = s.count * s.steps;
    A* const parts = by_gate(op) ? at<A>(io, dx_) : io.dx[0];
    Weights weights(inputs_, io.device, io.w, io.scratch, io.scratch + workspace_);
    for (std::size_t b = 0; b < inputs_.blocks(); ++b)
      weights.backward(b, saved.z + gates_before(inputs_, b) * rows * s.u, parts + b * rows * s.f);
    if (by_gate(op) || masks != nullptr)
      io.device.launch(add_inputs_, Grid::over(rows * s.f), parts, masks, io.dx[0],
                       static_cast<std::int64_t>(rows));
  }

  void find_kernels(const O& op, CudaContext& context) {
    static constexpr Source source{"recurrent", recurrent_kernels_of<O>, cell_text<O>};
    const RecurrentLayer& layer = op.layer;
    std::vector<Define> defines{
        {"ACTIVATION", activation_code<Precision>},
        {"STEPS", layer.in[0]},
        {"UNITS", layer.units},
        {"GATES", O::gates},
        {"STATES", O::states},
        {"Z", O::z_count},
        {"EXTRA", has_extra},
        {"BIASES", layer.bias ? O::biases : 0},
        {"BY_GATE", by_gate(op)},
        {"RESETS_BEFORE", O::resets_before},
        {"STATE_PRODUCTS", by_gate(op) ? O::gates - (O::resets_before ? 1 : 0) : 1},
        {"RETURN_SEQUENCES", layer.return_sequences},
        {"GO_BACKWARDS", layer.go_backwards},
        {"IN_ORDER", layer.output_order < 0},
        {"ZERO_OUTPUT", layer.zero_output},
        {"MASKS", sizes_.masks},
        {"STATE_MASKS", sizes_.state_masks}};
    add_cell_defines(op, defines);
    forward_ = context.kernel(source, "forward_step", defines);
    backward_ = context.kernel(source, "backward_step", defines);
    if (O::resets_before) {
      reset_ = context.kernel(source, "reset_step", defines);
      reset_backward_ = context.kernel(source, "reset_backward_step", defines);
    }
    if (!drops(op)) return;
    const std::array operands{Define("ACTIVATION", activation_code<Precision>),
                              Define("STEPS", layer.in[0]),
                              Define("FEATURES", layer.in[1]),
                              Define("UNITS", layer.units),
                              Define("GATES", O::gates),
                              Define("BLOCKS", inputs_.blocks()),
                              Define("MASKS", sizes_.masks),
                              Define("STATE_MASKS", sizes_.state_masks),
                              Define("THRESHOLD", threshold(layer.dropout)),
                              Define("STATE_THRESHOLD", threshold(layer.recurrent_dropout)),
                              Define("KEPT", 1 / (1 - layer.dropout)),
                              Define("STATE_KEPT", 1 / (1 - layer.recurrent_dropout))};
    draw_ = context.kernel(recurrent_operands_source, "draw_masks", operands);
    mask_inputs_ = context.kernel(recurrent_operands_source, "mask_inputs", operands);
    mask_states_ = context.kernel(recurrent_operands_source, "mask_states", operands);
    add_inputs_ = context.kernel(recurrent_operands_source, "add_inputs", operands);
  }

  Sizes sizes_;
  GateProducts<Precision> inputs_, states_;
  CUfunction forward_ = nullptr, backward_ = nullptr, reset_ = nullptr, reset_backward_ = nullptr,
             draw_ = nullptr, mask_inputs_ = nullptr, mask_states_ = nullptr, add_inputs_ = nullptr;
  // offsets in scratch
  std::size_t bytes_ = 0, workspace_ = 0, products_ = 0, masks_ = 0, masked_x_ = 0, masked_h_ = 0,
              dz_ = 0, d_ = 0, dq_ = 0, dx_ = 0;
};

}  // namespace detail::cuda

/// Keeps x. Forward saves the states of all steps, and what backward reads of each sum.
template <detail::IsRecurrent O, class Precision>
  requires(detail::cuda::has_cell_text<O>())
struct Kernel<O, BasicCuda<Precision>>
    : PreparedKernel<O, BasicCuda<Precision>, detail::cuda::RecurrentCalls<O, Precision>> {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true, skips_dw = true;
  static constexpr std::size_t saved(const O& op) {
    return detail::cuda::RecurrentCalls<O, Precision>::saved(op);
  }
};

static_assert(HasKernel<LSTMOp<>, Cuda> && HasKernel<GRUOp<>, Cuda> &&
              HasKernel<GRUOp<false>, Cuda> && HasKernel<SimpleRNNOp<>, Cuda>);

}  // namespace lockstep
