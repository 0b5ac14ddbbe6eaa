/// \file
/// GaussianNoise on every device over host memory. Invariant: the noise of elements i and i + 1 of
/// an example, i even, is the Box-Muller pair of words i and i + 1 of the Philox stream `ordinal`
/// under the key mix(mix(seed, layer), pass), in double:
///
///     r = sqrt(-2 log((word_i + 1) / 2^32)),  a = 2 pi word_(i+1) / 2^32
///     noise_i = stddev r cos a,  noise_(i+1) = stddev r sin a
///
/// All devices follow this rule.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/layers/regularization/gaussian_noise.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<GaussianNoiseOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool in_place = true;

  static void forward(const GaussianNoiseOp& op, const Io<D>& io) {
    const std::size_t size = op.in.size();
    if (!io.step.training || op.stddev <= 0) {
      if (io.x[0] != io.y) std::copy_n(io.x[0], io.step.count * size, io.y);
      return;
    }
    const std::uint64_t key = mix(mix(io.step.seed, io.key), io.step.pass);
    detail::for_ranges(io.device, io.step.count, (1 << 10) / size + 1, [&](Slice part) {
      for (std::size_t n = part.first; n < part.first + part.count; ++n)
        add_noise(Philox(key, io.step.first_ordinal + n), static_cast<double>(op.stddev), size,
                  io.x[0] + n * size, io.y + n * size);
    });
  }

  static void backward(const GaussianNoiseOp& op, const Io<D>& io) {
    if (io.dx[0] != nullptr && io.dx[0] != io.dy)
      std::copy_n(io.dy, io.step.count * op.in.size(), io.dx[0]);
  }

 private:
  /// y = x + noise for one example; x and y are (size) and may be the same.
  static void add_noise(Philox words, double stddev, std::size_t size, const A* x, A* y) {
    for (std::size_t i = 0; i < size; i += 2) {
      const double radius = stddev * std::sqrt(-2 * std::log((words() + 1.0) * 0x1p-32));
      const double angle = 6.283185307179586476925 * 0x1p-32 * words();
      y[i] = A(T(x[i]) + static_cast<T>(radius * std::cos(angle)));
      if (i + 1 < size) y[i + 1] = A(T(x[i + 1]) + static_cast<T>(radius * std::sin(angle)));
    }
  }
};

}  // namespace lockstep
