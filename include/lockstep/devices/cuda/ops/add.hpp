/// \file
/// Add on a GPU, one thread per element: y = x + x2; dx = dx2 = dy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/layers/merging/add.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr Source add_source{"add", R"cuda(
KERNEL(forward)(const A* x, const A* __restrict__ x2, A* y, i64 n) {
  FOR_EACH(i, n) y[i] = put<A>(get(x[i]) + get(x2[i]));
}
// Either gradient may be null.
KERNEL(backward)(const A* __restrict__ dy, A* __restrict__ dx, A* __restrict__ dx2, i64 n) {
  FOR_EACH(i, n) {
    const A v = dy[i];
    if (dx) dx[i] = v;
    if (dx2) dx2[i] = v;
  }
}
)cuda"};

}  // namespace detail::cuda

/// y may be x; the kernels read an element before they write it.
template <class Precision>
struct Kernel<AddOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  static constexpr bool in_place = true;

  static void forward(const AddOp& op, const Io<D>& io) {
    const std::size_t n = io.step.count * op.in.size();
    if (n == 0) return;
    io.device.launch(kernel(io, "forward"), detail::cuda::Grid::over(n), io.x[0], io.x[1], io.y,
                     static_cast<std::int64_t>(n));
  }
  static void backward(const AddOp& op, const Io<D>& io) {
    const std::size_t n = io.step.count * op.in.size();
    if (n == 0 || (io.dx[0] == nullptr && io.dx[1] == nullptr)) return;
    io.device.launch(kernel(io, "backward"), detail::cuda::Grid::over(n), io.dy, io.dx[0], io.dx[1],
                     static_cast<std::int64_t>(n));
  }

 private:
  static CUfunction kernel(const Io<D>& io, const char* entry) {
    return io.device.kernel(detail::cuda::add_source, entry,
                            {{"ACTIVATION", detail::cuda::activation_code<Precision>}});
  }
};

static_assert(HasKernel<AddOp, Cuda>);

}  // namespace lockstep
