/// \file
/// ZeroPadding2D on a GPU: one thread per result; backward copies the inner part.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/layers/reshaping/zero_padding2d.hpp"

namespace lockstep {

namespace detail::cuda {

/// LENGTH and WIDE_LENGTH: elements per row of x and of y.
inline constexpr Source zero_padding2d_source{"zero_padding2d", R"cuda(
KERNEL(forward)(const A* __restrict__ x, A* __restrict__ y, i64 n) {
  FOR_EACH(i, n) {
    const i64 image = i / (OUT_ROWS * WIDE_LENGTH);
    const int place = (int)(i - image * (OUT_ROWS * WIDE_LENGTH));
    const int row = place / WIDE_LENGTH - TOP, at = place % WIDE_LENGTH - LEFT;
    const bool inside = row >= 0 && row < IN_ROWS && at >= 0 && at < LENGTH;
    y[i] = inside ? x[(image * IN_ROWS + row) * LENGTH + at] : put<A>(0.0f);
  }
}
KERNEL(backward)(const A* __restrict__ dy, A* __restrict__ dx, i64 n) {
  FOR_EACH(i, n) {
    const i64 image = i / (IN_ROWS * LENGTH);
    const int place = (int)(i - image * (IN_ROWS * LENGTH));
    const int row = place / LENGTH + TOP, at = place % LENGTH + LEFT;
    dx[i] = dy[(image * OUT_ROWS + row) * WIDE_LENGTH + at];
  }
}
)cuda"};

}  // namespace detail::cuda

/// Backward needs neither x nor y.
template <class Precision>
struct Kernel<ZeroPadding2DOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;

  static void forward(const ZeroPadding2DOp& op, const Io<D>& io) {
    run(op, io.device, "forward", io.step.count * op.out().size(), io.x, io.y);
  }
  static void backward(const ZeroPadding2DOp& op, const Io<D>& io) {
    if (io.dx == nullptr) return;
    run(op, io.device, "backward", io.step.count * op.in.size(), io.dy, io.dx);
  }

 private:
  template <class A>
  static void run(const ZeroPadding2DOp& op, typename D::Context& device, const char* entry,
                  std::size_t n, const A* from, A* to) {
    using detail::cuda::Define;
    if (n == 0) return;
    const auto defines = detail::cuda::with_activation<Precision>(std::array{
        Define("IN_ROWS", op.in[0]), Define("OUT_ROWS", op.out()[0]),
        Define("LENGTH", op.in[1] * op.in[2]), Define("WIDE_LENGTH", op.out()[1] * op.in[2]),
        Define("TOP", op.edges.top), Define("LEFT", op.edges.left * op.in[2])});
    device.launch(device.kernel(detail::cuda::zero_padding2d_source, entry, defines),
                  detail::cuda::Grid::over(n), from, to, static_cast<std::int64_t>(n));
  }
};

static_assert(HasKernel<ZeroPadding2DOp, Cuda>);

}  // namespace lockstep
