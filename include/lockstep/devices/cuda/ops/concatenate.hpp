/// \file
/// Concatenate on the last axis on a GPU: one thread per element of the longer row, which holds
/// FIRST elements of x, then SECOND of x2.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/layers/merging/concatenate.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr Source concatenate_source{"concatenate", R"cuda(
KERNEL(forward)(const A* __restrict__ x, const A* __restrict__ x2, A* __restrict__ y, i64 n) {
  FOR_EACH(i, n) {
    const i64 row = i / (FIRST + SECOND);
    const int k = (int)(i - row * (FIRST + SECOND));
    y[i] = k < FIRST ? x[row * FIRST + k] : x2[row * SECOND + k - FIRST];
  }
}
// Either gradient may be null.
KERNEL(backward)(const A* __restrict__ dy, A* __restrict__ dx, A* __restrict__ dx2, i64 n) {
  FOR_EACH(i, n) {
    const i64 row = i / (FIRST + SECOND);
    const int k = (int)(i - row * (FIRST + SECOND));
    if (k < FIRST) {
      if (dx) dx[row * FIRST + k] = dy[i];
    } else {
      if (dx2) dx2[row * SECOND + k - FIRST] = dy[i];
    }
  }
}
)cuda"};

}  // namespace detail::cuda

/// One launch per pass; backward splits dy.
template <class Precision>
struct Kernel<ConcatenateOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;

  static void forward(const ConcatenateOp& op, const Io<D>& io) {
    run(op, io, "forward", io.x[0], io.x[1], io.y);
  }
  static void backward(const ConcatenateOp& op, const Io<D>& io) {
    if (io.dx[0] != nullptr || io.dx[1] != nullptr)
      run(op, io, "backward", io.dy, io.dx[0], io.dx[1]);
  }

 private:
  template <class... Ts>
  static void run(const ConcatenateOp& op, const Io<D>& io, const char* entry,
                  const Ts&... pointers) {
    const std::size_t n = io.step.count * op.out().size();
    if (n == 0) return;
    const auto defines = detail::cuda::with_activation<Precision>(std::array{
        detail::cuda::Define("FIRST", op.in.channels()), detail::cuda::Define("SECOND", op.other)});
    io.device.launch(io.device.kernel(detail::cuda::concatenate_source, entry, defines),
                     detail::cuda::Grid::over(n), pointers..., static_cast<std::int64_t>(n));
  }
};

static_assert(HasKernel<ConcatenateOp, Cuda>);

}  // namespace lockstep
