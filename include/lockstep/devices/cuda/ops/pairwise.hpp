/// \file
/// Element-by-element merges of two values on a GPU. Invariant: one element per thread. CudaText<Op> defines
/// `float value(float a, float b)`, and `float dx(float dy, float a, float b)` and `dx2`, in which
/// a and b are 0 unless the op declares `reads_inputs`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/scalar_text.hpp"
#include "lockstep/layers/merging/pairwise.hpp"
#include "lockstep/layers/merging/subtract.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr char pairwise_text[] = R"cuda(
KERNEL(forward)(const A* x, const A* __restrict__ x2, A* y, i64 n) {
  FOR_EACH(i, n) y[i] = put<A>(value(get(x[i]), get(x2[i])));
}
// Either gradient may be null, and both inputs are unless READS_INPUTS. dx may be dy.
KERNEL(backward)(const A* __restrict__ x, const A* __restrict__ x2, const A* dy, A* to, A* to2,
                 i64 n) {
  FOR_EACH(i, n) {
    const float a = READS_INPUTS ? get(x[i]) : 0.0f, b = READS_INPUTS ? get(x2[i]) : 0.0f;
    const float slope = get(dy[i]);
    if (to) to[i] = put<A>(dx(slope, a, b));
    if (to2) to2[i] = put<A>(dx2(slope, a, b));
  }
}
)cuda";

}  // namespace detail::cuda

template <>
struct CudaText<SubtractOp> {
  static constexpr char functions[] = R"cuda(
__device__ inline float value(float a, float b) { return a - b; }
__device__ inline float dx(float dy, float, float) { return dy; }
__device__ inline float dx2(float dy, float, float) { return -dy; }
)cuda";
  static std::array<CudaDefine, 0> defines(const SubtractOp&) { return {}; }
};

/// y may be x[0] unless backward reads it; the kernels read an element before they write it.
template <Pairwise Op, class Precision>
  requires HasCudaText<Op>
struct Kernel<Op, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  static constexpr bool keeps_x = Op::reads_inputs, in_place = !Op::reads_inputs;

  static void forward(const Op& op, const Io<D>& io) {
    const std::size_t n = io.step.count * op.out().size();
    if (n == 0) return;
    io.device.launch(io.device.kernel(source, "forward", defines(op)), detail::cuda::Grid::over(n),
                     io.x[0], io.x[1], io.y, static_cast<std::int64_t>(n));
  }
  static void backward(const Op& op, const Io<D>& io) {
    const std::size_t n = io.step.count * op.out().size();
    if (n == 0 || (io.dx[0] == nullptr && io.dx[1] == nullptr)) return;
    io.device.launch(io.device.kernel(source, "backward", defines(op)), detail::cuda::Grid::over(n),
                     io.x[0], io.x[1], io.dy, io.dx[0], io.dx[1], static_cast<std::int64_t>(n));
  }

 private:
  static constexpr detail::cuda::Source source{"pairwise", detail::cuda::pairwise_text,
                                               CudaText<Op>::functions};
  static auto defines(const Op& op) {
    return detail::cuda::with_activation<Precision>(detail::cuda::with_define(
        CudaText<Op>::defines(op), {"READS_INPUTS", Op::reads_inputs ? 1 : 0}));
  }
};

static_assert(HasKernel<SubtractOp, Cuda>);

}  // namespace lockstep
