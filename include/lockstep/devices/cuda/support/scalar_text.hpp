/// \file
/// Arithmetic of ops that carry scalar functions of their own, once more as text for the GPU.
#pragma once

#include <array>

#include "lockstep/devices/cuda/program.hpp"

namespace lockstep {

/// The functions of an op as CUDA C++, for the kernel that serves all ops of its kind: specialise
/// it for an activation, a loss, a metric or an optimizer of one's own. Declared, never defined
/// here, so that a missing one can be asked for.
///
/// - `functions`: the text. What it must define stands in the header of its kind (pointwise.hpp,
///   loss.hpp, metric.hpp, optimizer.hpp in devices/cuda/kernels). It may stand in a namespace,
///   beside those of other ops.
/// - `defines(op)`: the op's numbers that the text knows by name.
/// \code
///   template <>
///   struct ls::CudaText<SquareOp> {
///     static constexpr char functions[] = R"cuda(
///   __device__ float value(float x) { return x * x; }
///   __device__ float derivative(float x) { return 2 * x; }
///   )cuda";
///     static std::array<ls::CudaDefine, 0> defines(const SquareOp&) { return {}; }
///   };
/// \endcode
template <class Op>
struct CudaText;

/// A number that a text knows by name: `{"SLOPE", op.slope}`.
using CudaDefine = detail::cuda::Define;

template <class Op>
concept HasCudaText = requires(const Op& op) {
  CudaText<Op>::functions;
  CudaText<Op>::defines(op);
};

}  // namespace lockstep
