/// \file
/// Scalar functions of ops as CUDA C++ text.
#pragma once

#include <array>

#include "lockstep/devices/cuda/program.hpp"

namespace lockstep {

/// The scalar functions of an op as CUDA C++, for the kernel shared by all ops of its kind.
/// Specialise it for a custom activation, loss, metric or optimizer. The primary template is
/// declared but not defined, so that a concept can test for a specialisation.
///
/// - `functions`: the text. The header of the op's kind lists what it must define (pointwise.hpp,
///   loss.hpp, metric.hpp, optimizer.hpp in devices/cuda/ops). It may be placed in a namespace next
///   to other texts.
/// - `defines(op)`: the op's numbers, which the text uses as macros.
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

/// A number passed to a text as a macro: `{"SLOPE", op.slope}`.
using CudaDefine = detail::cuda::Define;

/// Ops with a GPU text.
template <class Op>
concept HasCudaText = requires(const Op& op) {
  CudaText<Op>::functions;
  CudaText<Op>::defines(op);
};

}  // namespace lockstep
