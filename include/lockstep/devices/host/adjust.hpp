/// \file
/// Passes over weights and gradients before and after an optimizer's update, for every device over
/// host memory. Invariants: sums of squares are accumulated in double, in a fixed order; all other
/// arithmetic is in the device's type.
#pragma once

#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/optimizer.hpp"

namespace lockstep {

namespace detail {

/// The derivative of the penalty l1 |w| + l2 w^2: l1 sign(w) + 2 l2 w.
template <class T>
T penalty_gradient(T w, T l1, T l2) {
  return (w > 0 ? l1 : w < 0 ? -l1 : T(0)) + 2 * l2 * w;
}

/// The prologue of an update, for one element (see UpdateIo): adds the penalty's gradient to g,
/// applies decoupled weight decay to w, and returns g scaled and clipped to [-limit, limit].
template <class T>
struct Adjust {
  T l1, l2, decay, scale, limit;
  T operator()(T& w, T& g) const {
    g += penalty_gradient(w, l1, l2);
    w -= decay * w;
    const T seen = scale * g;
    return seen < -limit ? -limit : seen > limit ? limit : seen;
  }
};
/// The prologue of `io`, rounded to the device's type once.
template <class D>
Adjust<typename D::real> adjust_of(const UpdateIo<D>& io) {
  using T = typename D::real;
  return {static_cast<T>(io.penalty.l1), static_cast<T>(io.penalty.l2), static_cast<T>(io.decay),
          static_cast<T>(io.scale), static_cast<T>(io.limit)};
}

/// Sum of f(i) for i < n, in eight independent partial sums: a single one would be a chain of
/// dependent additions, which the compiler may not reorder into vectors.
template <class F>
double sum_in_lanes(std::size_t n, const F& f) {
  constexpr std::size_t lanes = 8;
  double lane[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (std::size_t k = 0; k < lanes; ++k) lane[k] += f(i + k);
  for (; i < n; ++i) lane[i % lanes] += f(i);
  double sum = 0;
  for (const double part : lane) sum += part;
  return sum;
}

}  // namespace detail

template <HostDevice D>
struct Kernel<GradientPass, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;

  static void run(GradientPass, const GradientPassIo<D>& io) {
    const T l1 = static_cast<T>(io.penalty.l1), l2 = static_cast<T>(io.penalty.l2);
    if (io.penalty)
      for (std::size_t i = 0; i < io.size; ++i)
        io.g[i] += detail::penalty_gradient(io.w[i], l1, l2);
    if (io.sum != nullptr)
      for (std::size_t i = 0; i < io.size; ++i) io.sum[i] += io.g[i];
    if (io.squares == nullptr) return;
    // With gradient accumulation the norm is that of the accumulated gradient.
    const T* const whole = io.sum != nullptr ? io.sum : io.g;
    *io.squares += detail::sum_in_lanes(io.size, [whole](std::size_t i) {
      return static_cast<double>(whole[i]) * static_cast<double>(whole[i]);
    });
  }
};

template <HostDevice D>
struct Kernel<MovingAverage, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;

  static void run(const MovingAverage& op, const MovingAverageIo<D>& io) {
    const T old = static_cast<T>(op.momentum), rest = static_cast<T>(1 - op.momentum);
    for (std::size_t i = 0; i < io.size; ++i) {
      io.average[i] = old * io.average[i] + rest * io.w[i];
      if (op.overwrites) io.w[i] = io.average[i];
    }
  }
};

}  // namespace lockstep
