/// \file
/// Pointwise activations on a GPU. Invariant: one element per thread. CudaText<Op> defines `float
/// value(float x)` and `float derivative(float)`, which takes y if the op says `from_y`, else x.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/scalar_text.hpp"
#include "lockstep/layers/activations/pointwise.hpp"

namespace lockstep {

namespace detail::cuda {

/// `known` is x or y.
inline constexpr char pointwise_text[] = R"cuda(
KERNEL(forward)(const A* x, A* y, i64 n) {
  FOR_EACH(i, n) y[i] = put<A>(value(get(x[i])));
}
KERNEL(backward)(const A* known, const A* dy, A* dx, i64 n) {
  FOR_EACH(i, n)
    dx[i] = put<A>(get(dy[i]) * derivative(get(known[i])));
}
)cuda";

}  // namespace detail::cuda

/// Keeps x or y, whichever the derivative needs; with y the result may overwrite x.
template <Pointwise Op, class Precision>
  requires HasCudaText<Op>
struct Kernel<Op, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  static constexpr bool keeps_x = !Op::from_y, keeps_y = Op::from_y, in_place = Op::from_y;

  static void forward(const Op& op, const Io<D>& io) {
    const std::size_t n = io.step.count * op.out().size();
    if (n == 0) return;
    io.device.launch(io.device.kernel(source, "forward", defines(op)), detail::cuda::Grid::over(n),
                     io.x[0], io.y, static_cast<std::int64_t>(n));
  }
  static void backward(const Op& op, const Io<D>& io) {
    const std::size_t n = io.step.count * op.out().size();
    if (n == 0 || io.dx[0] == nullptr) return;
    io.device.launch(io.device.kernel(source, "backward", defines(op)), detail::cuda::Grid::over(n),
                     Op::from_y ? io.y : io.x[0], io.dy, io.dx[0], static_cast<std::int64_t>(n));
  }

 private:
  static constexpr detail::cuda::Source source{"pointwise", detail::cuda::pointwise_text,
                                               CudaText<Op>::functions};
  static auto defines(const Op& op) {
    return detail::cuda::with_activation<Precision>(CudaText<Op>::defines(op));
  }
};

}  // namespace lockstep
