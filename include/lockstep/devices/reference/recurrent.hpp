/// \file
/// Recurrent layers on the reference device: one example after the other, plain loops over steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/double_sums.hpp"
#include "lockstep/devices/host/recurrent/cells.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/layers/recurrent/recurrent_options.hpp"

namespace lockstep {
namespace detail {

/// An activation for single numbers; `slope` takes y or x, as `derivative` of the op does.
template <class A>
struct ScalarActivation {
  static constexpr bool from_y = A::from_y;
  const A& op;
  template <class T>
  void value(T& y, const T& x) const {
    y = op.value(x);
  }
  template <class T>
  void slope(T& d, const T& known) const {
    d = op.derivative(known);
  }
};

}  // namespace detail

/// Forward saves the sums z of each step, then the states, `units` numbers each.
template <detail::IsRecurrent O, class T>
struct Kernel<O, Reference<T>> : KernelTraits {
  using library_kernel = Kernel;
  using D = Reference<T>;
  static constexpr bool keeps_x = true, skips_dw = true;
  static constexpr std::size_t vectors = std::size_t{O::z_count} + std::size_t{O::states};
  static constexpr std::size_t saved(const O& op) {
    return op.layer.steps() * vectors * op.layer.width() * sizeof(T);
  }

  struct Prepared {
    std::vector<T> masks, zeros, initial, d, q;
    detail::DoubleSums<T> sums;
    std::size_t scratch_bytes() const { return 0; }
  };
  static Prepared prepare(const O& op, typename D::Context&, std::size_t) {
    const std::size_t u = op.layer.width(), f = op.layer.features(), g = std::size_t{O::gates};
    return {std::vector<T>(g * (f + u)), std::vector<T>(vectors * u),
            std::vector<T>(2 * u),       std::vector<T>(2 * u),
            std::vector<T>(u),           detail::DoubleSums<T>(op.weights())};
  }

  static void forward(const O& op, const Io<D>& io, Prepared& p) {
    const auto& layer = op.layer;
    const std::size_t u = layer.width(), f = layer.features(), steps = layer.steps();
    const auto activations = detail::cell_activations<detail::ScalarActivation>(op);
    for (std::size_t n = 0; n < io.step.count; ++n) {
      const Example example(op, io, n, p);
      for (std::size_t s = 0; s < steps; ++s) {
        T* const row = example.row(s);  // (vectors, u)
        const T* const before = example.before(s);
        T* const y = layer.return_sequences ? io.y + n * layer.row() + layer.output_step(s) * u
                     : s == steps - 1       ? io.y + n * layer.row()
                                            : nullptr;
        if (example.is_padding(s)) {
          std::fill_n(row, slot(O::z_count) * u, T(0));
          std::copy_n(before, slot(O::states) * u, row + slot(O::z_count) * u);
          if (y != nullptr) std::copy_n(example.has_no_output(s) ? p.zeros.data() : before, u, y);
          continue;
        }
        bias(op, io.w, row);
        for (int g = 0; g < O::gates; ++g) {
          for (std::size_t i = 0; i < f; ++i)
            for (std::size_t j = 0; j < u; ++j)
              row[slot(g) * u + j] +=
                  example.x(s)[i] * example.x_mask(g, i) * io.w[at(op, g, i, j)];
          if (O::resets_before && g == 2) break;
          for (std::size_t i = 0; i < u; ++i)
            for (std::size_t j = 0; j < u; ++j)
              row[slot(O::slot_of(g)) * u + j] +=
                  before[i] * example.h_mask(g, i) * io.w[at(op, g, f + i, j)];
        }
        if constexpr (O::resets_before) {
          for (std::size_t j = 0; j < u; ++j)
            with_slots(row, u, j,
                       [&](auto& z) { O::reset(activations, z, before[j], example.h_mask(2, j)); });
          for (std::size_t i = 0; i < u; ++i)
            for (std::size_t j = 0; j < u; ++j)
              row[2 * u + j] += row[3 * u + i] * io.w[at(op, 2, f + i, j)];
        }
        for (std::size_t j = 0; j < u; ++j)
          with_slots(row, u, j, [&](auto& z) {
            T state[O::states];
            load(state, before, u, j);
            O::forward(activations, z, state);
            for (int k = 0; k < O::states; ++k) row[slot(O::z_count + k) * u + j] = state[k];
          });
        if (y != nullptr) std::copy_n(row + slot(O::z_count) * u, u, y);
      }
      std::copy_n(example.before(steps), slot(layer.results - 1) * u,
                  io.y + n * layer.row() + layer.output().size());
    }
  }

  static void backward(const O& op, const Io<D>& io, Prepared& p) {
    const auto& layer = op.layer;
    const std::size_t u = layer.width(), f = layer.features(), steps = layer.steps();
    const auto activations = detail::cell_activations<detail::ScalarActivation>(op);
    double* const dw = p.sums.begin(io.dw);  // null if frozen
    for (std::size_t n = 0; n < io.step.count; ++n) {
      const Example example(op, io, n, p);
      const T* const dy = io.dy + n * layer.row();
      std::fill(p.d.begin(), p.d.end(), T(0));  // of the states after the step, (states, u)
      std::copy_n(dy + layer.output().size(), slot(layer.results - 1) * u, p.d.begin());
      for (std::size_t s = steps; s-- > 0;) {
        T* const row = example.row(s);
        const T *const before = example.before(s), *const h = before;
        const bool pads = example.is_padding(s);
        if ((layer.return_sequences || s == steps - 1) && !example.has_no_output(s))
          for (std::size_t j = 0; j < u; ++j)
            p.d[j] += dy[(layer.return_sequences ? layer.output_step(s) * u : 0) + j];
        if (pads) {
          if (io.dx[0] != nullptr) std::fill_n(io.dx[0] + (n * steps + layer.time(s)) * f, f, T(0));
          continue;
        }
        if constexpr (O::resets_before) std::copy_n(row + 3 * u, u, p.q.begin());
        for (std::size_t j = 0; j < u; ++j)
          with_slots(row, u, j, [&](auto& z) {
            T states[2][O::states], d[O::states];
            load(states[0], before, u, j);
            load(states[1], row + slot(O::z_count) * u, u, j);
            load(d, p.d.data(), u, j);
            O::backward(activations, z, states[0], states[1], d);
            for (int k = 0; k < O::states; ++k) p.d[slot(k) * u + j] = d[k];
          });
        if constexpr (O::resets_before)
          for (std::size_t i = 0; i < u; ++i) {
            T dq = 0;
            for (std::size_t j = 0; j < u; ++j) dq += row[2 * u + j] * io.w[at(op, 2, f + i, j)];
            with_slots(row, u, i, [&](auto& z) {
              O::reset_backward(activations, z, h[i], example.h_mask(2, i), dq, p.d[i]);
            });
          }
        for (int g = 0; g < O::gates; ++g) {
          const T *const dx_slot = row + slot(g) * u, *const dh_slot =
                                                          row + slot(O::slot_of(g)) * u;
          const bool resets = O::resets_before && g == 2;
          for (std::size_t i = 0; i < u; ++i) {
            T sum = 0;
            for (std::size_t j = 0; j < u; ++j) sum += dh_slot[j] * io.w[at(op, g, f + i, j)];
            if (!resets) p.d[i] += sum * example.h_mask(g, i);
          }
          if (io.dx[0] != nullptr) {
            T* const dx = io.dx[0] + (n * steps + layer.time(s)) * f;
            for (std::size_t i = 0; i < f; ++i) {
              T sum = 0;
              for (std::size_t j = 0; j < u; ++j) sum += dx_slot[j] * io.w[at(op, g, i, j)];
              dx[i] = (g == 0 ? T(0) : dx[i]) + sum * example.x_mask(g, i);
            }
          }
          if (dw == nullptr) continue;
          for (std::size_t i = 0; i < f + u; ++i) {
            const T left = i < f    ? example.x(s)[i] * example.x_mask(g, i)
                           : resets ? p.q[i - f]
                                    : h[i - f] * example.h_mask(g, i - f);
            for (std::size_t j = 0; j < u; ++j)
              dw[at(op, g, i, j)] +=
                  static_cast<double>(left) * static_cast<double>((i < f ? dx_slot : dh_slot)[j]);
          }
          if (layer.bias)
            for (int b = 0; b < O::biases; ++b)
              for (std::size_t j = 0; j < u; ++j)
                dw[bias_at(op, b, g, j)] += static_cast<double>((b == 0 ? dx_slot : dh_slot)[j]);
        }
      }
      for (int k = 0; k < layer.operands - 1; ++k)
        if (T* const to = io.dx[slot(k + 1)]) std::copy_n(p.d.data() + slot(k) * u, u, to + n * u);
    }
    p.sums.end(io.dw);
  }

 private:
  static constexpr std::size_t slot(int index) { return static_cast<std::size_t>(index); }
  /// Element (i, gate, j) of the kernel, whose rows the recurrent kernel continues.
  static std::size_t at(const O& op, int gate, std::size_t i, std::size_t j) {
    return (i * std::size_t{O::gates} + slot(gate)) * op.layer.width() + j;
  }
  static std::size_t bias_at(const O& op, int vector, int gate, std::size_t j) {
    return op.layer.matrices(O::gates) + slot(vector * O::gates + gate) * op.layer.width() + j;
  }

  /// The sums of a step begin with the bias.
  static void bias(const O& op, const T* w, T* row) {
    const std::size_t u = op.layer.width();
    std::fill_n(row, slot(O::z_count) * u, T(0));
    if (!op.layer.bias) return;
    for (int b = 0; b < O::biases; ++b)
      for (int g = 0; g < O::gates; ++g)
        for (std::size_t j = 0; j < u; ++j)
          row[slot(b == 0 ? g : O::slot_of(g)) * u + j] += w[bias_at(op, b, g, j)];
  }
  template <std::size_t N>
  static void load(T (&to)[N], const T* from, std::size_t u, std::size_t j) {
    for (std::size_t k = 0; k < N; ++k) to[k] = from[k * u + j];
  }
  /// Calls body with the sums z of unit j, which it may change.
  template <class Body>
  static void with_slots(T* row, std::size_t u, std::size_t j, const Body& body) {
    T z[O::z_count];
    load(z, row, u, j);
    body(z);
    for (int k = 0; k < O::z_count; ++k) row[slot(k) * u + j] = z[k];
  }

  /// One example of a call.
  class Example {
   public:
    Example(const O& op, const Io<D>& io, std::size_t n, Prepared& p)
        : layer_(op.layer),
          masks_(op.layer, O::gates, io.step.training),
          mask_(p.masks.data()),
          initial_(p.initial.data()),
          x_(io.x[0] + n * layer_.steps() * layer_.features()),
          valid_(layer_.masked ? io.x[layer_.mask_operand()] + n * layer_.steps() : nullptr),
          rows_(reinterpret_cast<T*>(io.saved) + n * layer_.steps() * vectors * layer_.width()) {
      if (masks_) masks_.draw(io, n, p.masks.data());
      const std::size_t u = layer_.width();
      for (int k = 0; k < layer_.operands - 1; ++k)
        std::copy_n(io.x[slot(k + 1)] + n * u, u, p.initial.data() + slot(k) * u);
    }
    const T* x(std::size_t s) const { return x_ + layer_.time(s) * layer_.features(); }
    bool is_padding(std::size_t s) const {
      return valid_ != nullptr && valid_[layer_.time(s)] == T(0);
    }
    bool has_no_output(std::size_t s) const { return layer_.has_no_output(valid_, s); }
    /// The saved z and states of step s of the loop.
    T* row(std::size_t s) const { return rows_ + s * vectors * layer_.width(); }
    /// The states before step s; after the last one for the number of steps.
    const T* before(std::size_t s) const {
      return s == 0 ? initial_ : row(s - 1) + slot(O::z_count) * layer_.width();
    }
    T x_mask(int gate, std::size_t i) const {
      return masks_ ? mask_[(masks_.by_gate() ? slot(gate) * layer_.features() : 0) + i] : T(1);
    }
    T h_mask(int gate, std::size_t i) const {
      return masks_ && masks_.by_gate() ? mask_[masks_.state() + slot(gate) * layer_.width() + i]
                                        : T(1);
    }

   private:
    const detail::RecurrentLayer& layer_;
    detail::RecurrentMasks masks_;
    const T *mask_, *initial_, *x_, *valid_;
    T* rows_;
  };
};

}  // namespace lockstep
