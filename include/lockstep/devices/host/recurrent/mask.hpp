/// \file
/// Masks, the layer Masking and the mean of unpadded steps, on every device over host memory.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/layers/pooling/pooling1d.hpp"
#include "lockstep/layers/recurrent/masking.hpp"

namespace lockstep {
namespace detail {

/// Whether an element of a step differs from `value`.
template <class A>
bool is_valid_step(const A* step, std::size_t width, float value) {
  return std::any_of(step, step + width, [=](A v) { return v != A(value); });
}

}  // namespace detail

template <HostDevice D>
struct Kernel<MaskOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using A = ActivationOf<D>;
  static void forward(const MaskOp& op, const Io<D>& io) {
    const std::size_t width = op.width();
    for (std::size_t i = 0; i < io.step.count * op.out().size(); ++i) {
      bool counts = detail::is_valid_step(io.x[0] + i * width, width, op.value);
      if (op.merges && counts == op.both)
        counts = detail::is_valid_step(io.x[1] + i * width, width, op.value);
      io.y[i] = A(counts ? 1.0f : 0.0f);
    }
  }
  static void backward(const MaskOp&, const Io<D>&) {}
};

template <HostDevice D>
struct Kernel<MaskingOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x = true;
  static void forward(const MaskingOp& op, const Io<D>& io) { apply(op, io, io.x[0], io.y); }
  static void backward(const MaskingOp& op, const Io<D>& io) {
    if (io.dx[0] != nullptr) apply(op, io, io.dy, io.dx[0]);
  }

 private:
  static void apply(const MaskingOp& op, const Io<D>& io, const A* from, A* to) {
    const std::size_t width = op.mask().width(), size = io.step.count * op.in.size();
    for (std::size_t i = 0; i < size; i += width)
      if (detail::is_valid_step(io.x[0] + i, width, op.value))
        std::copy_n(from + i, width, to + i);
      else
        std::fill_n(to + i, width, A(0.0f));
  }
};

template <HostDevice D>
struct Kernel<MaskedAverageOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x(const MaskedAverageOp&, std::size_t operand) {
    return operand == 1;
  }
  static void forward(const MaskedAverageOp& op, const Io<D>& io) {
    const std::size_t steps = static_cast<std::size_t>(op.in[0]), width = op.out().size();
    for (std::size_t n = 0; n < io.step.count; ++n) {
      const A *const x = io.x[0] + n * steps * width, *const mask = io.x[1] + n * steps;
      const T share = share_of(mask, steps);
      for (std::size_t k = 0; k < width; ++k) {
        T sum = 0;
        for (std::size_t s = 0; s < steps; ++s)
          if (mask[s] != A(T(0))) sum += T(x[s * width + k]);
        io.y[n * width + k] = A(sum * share);
      }
    }
  }
  static void backward(const MaskedAverageOp& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    const std::size_t steps = static_cast<std::size_t>(op.in[0]), width = op.out().size();
    for (std::size_t n = 0; n < io.step.count; ++n) {
      const A* const mask = io.x[1] + n * steps;
      const T share = share_of(mask, steps);
      for (std::size_t s = 0; s < steps; ++s)
        for (std::size_t k = 0; k < width; ++k)
          io.dx[0][(n * steps + s) * width + k] =
              mask[s] != A(T(0)) ? A(T(io.dy[n * width + k]) * share) : A(T(0));
    }
  }

 private:
  /// 1 / the number of steps in the mean.
  static T share_of(const A* mask, std::size_t steps) {
    const auto padded = static_cast<std::size_t>(std::count(mask, mask + steps, A(T(0))));
    return padded == steps ? T(0) : T(1) / static_cast<T>(steps - padded);
  }
};

}  // namespace lockstep
