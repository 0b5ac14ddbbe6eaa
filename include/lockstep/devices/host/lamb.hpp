/// \file
/// Lamb on every device over host memory. Per parameter tensor, with Adam's direction
/// d = m / (sqrt(v) + epsilon), bias-corrected: w -= rate ||w|| / ||d|| d (You et al., 2019).
/// Invariants: norms are summed in double; d is computed twice rather than stored.
#pragma once

#include <cmath>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/devices/host/adjust.hpp"
#include "lockstep/optimizers/lamb.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<LambOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;

  /// Updates one parameter tensor. The trust ratio is 1 if either norm is 0.
  static void update(const LambOp& op, const UpdateIo<D>& io) {
    const auto adjust = detail::adjust_of(io);
    const T rest_1 = static_cast<T>(1 - op.beta_1), rest_2 = static_cast<T>(1 - op.beta_2);
    const T of_m = static_cast<T>(op.of_m), root = static_cast<T>(op.root);
    const T epsilon = static_cast<T>(op.epsilon);
    T* const w = io.w;
    T* const m = io.slot[0];
    T* const v = io.slot[1];
    for (std::size_t i = 0; i < io.size; ++i) {
      const T g = adjust(w[i], io.g[i]);
      m[i] += (g - m[i]) * rest_1;
      v[i] += (g * g - v[i]) * rest_2;
    }
    const auto direction = [=](std::size_t i) {
      return of_m * m[i] / (std::sqrt(v[i]) * root + epsilon);
    };
    const auto square = [](T x) { return static_cast<double>(x) * static_cast<double>(x); };
    const double size =
        std::sqrt(detail::sum_in_lanes(io.size, [&](std::size_t i) { return square(w[i]); }));
    const double length = std::sqrt(
        detail::sum_in_lanes(io.size, [&](std::size_t i) { return square(direction(i)); }));
    const T rate = static_cast<T>(op.rate * (size > 0 && length > 0 ? size / length : 1));
    for (std::size_t i = 0; i < io.size; ++i) w[i] -= rate * direction(i);
  }
};

}  // namespace lockstep
