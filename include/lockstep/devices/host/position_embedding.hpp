/// \file
/// PositionEmbedding on every device over host memory. Invariant: the gradient of the table is summed
/// over the examples in double, in their order.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/layers/position_embedding.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<PositionEmbeddingOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool in_place = true, skips_dw = true;

  static void forward(const PositionEmbeddingOp& op, const Io<D>& io) {
    const std::size_t size = op.in.size();
    for_elements(op, io, [&](std::size_t i) {
      for (std::size_t n = 0; n < io.step.count; ++n)
        io.y[n * size + i] = static_cast<A>(T(io.x[0][n * size + i]) + io.w[i]);
    });
  }
  static void backward(const PositionEmbeddingOp& op, const Io<D>& io) {
    const std::size_t size = op.in.size();
    if (io.dx[0] != nullptr) std::copy_n(io.dy, io.step.count * size, io.dx[0]);
    if (io.dw == nullptr) return;
    std::fill_n(io.dw, op.weights(), T(0));
    for_elements(op, io, [&](std::size_t i) {
      double sum = 0;
      for (std::size_t n = 0; n < io.step.count; ++n)
        sum += static_cast<double>(T(io.dy[n * size + i]));
      io.dw[i] = static_cast<T>(sum);
    });
  }

 private:
  /// Calls each(i) for the elements of an example, on all threads.
  template <class Each>
  static void for_elements(const PositionEmbeddingOp& op, const Io<D>& io, const Each& each) {
    detail::for_ranges(io.device, op.in.size(), 16384 / (io.step.count + 1) + 1, [&](Slice part) {
      for (std::size_t i = part.first; i < part.first + part.count; ++i) each(i);
    });
  }
};

}  // namespace lockstep
