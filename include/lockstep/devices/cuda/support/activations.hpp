/// \file
/// Activation functions and Rescaling as text for ops/pointwise.hpp. Invariant: they implement the
/// ops' formulas in float, written to avoid cancellation away from zero.
#pragma once

#include <array>

#include "lockstep/devices/cuda/ops/pointwise.hpp"
#include "lockstep/layers/activations/elu.hpp"
#include "lockstep/layers/activations/gelu.hpp"
#include "lockstep/layers/activations/leaky_relu.hpp"
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/activations/relu6.hpp"
#include "lockstep/layers/activations/sigmoid.hpp"
#include "lockstep/layers/activations/silu.hpp"
#include "lockstep/layers/activations/softplus.hpp"
#include "lockstep/layers/activations/tanh.hpp"
#include "lockstep/layers/preprocessing/rescaling.hpp"

namespace lockstep {

namespace detail::cuda {
/// Base of a CudaText without defines.
struct NoDefines {
  template <class Op>
  static constexpr std::array<CudaDefine, 0> defines(const Op&) {
    return {};
  }
};
}  // namespace detail::cuda

/// max(0, x); NaN stays NaN and passes its gradient.
template <>
struct CudaText<ReLUOp> : detail::cuda::NoDefines {
  static constexpr char functions[] = R"cuda(
__device__ float value(float x) { return x < 0 ? 0.0f : x; }
__device__ float derivative(float y) { return y <= 0 ? 0.0f : 1.0f; }
)cuda";
};

/// min(max(0, x), 6); NaN stays NaN and passes its gradient.
template <>
struct CudaText<ReLU6Op> : detail::cuda::NoDefines {
  static constexpr char functions[] = R"cuda(
__device__ float value(float x) { return x < 0 ? 0.0f : x > 6 ? 6.0f : x; }
__device__ float derivative(float y) { return y <= 0 || y >= 6 ? 0.0f : 1.0f; }
)cuda";
};

/// x for x > 0, else SLOPE * x. The sign of y is that of x, so the derivative needs only y.
template <>
struct CudaText<LeakyReLUOp> {
  static constexpr char functions[] = R"cuda(
__device__ float value(float x) { return x > 0 ? x : SLOPE * x; }
__device__ float derivative(float y) { return y > 0 ? 1.0f : SLOPE; }
)cuda";
  static std::array<CudaDefine, 1> defines(const LeakyReLUOp& op) {
    return {{{"SLOPE", op.slope}}};
  }
};

/// x for x > 0, else exp(x) - 1, whose derivative is y + 1.
template <>
struct CudaText<ELUOp> : detail::cuda::NoDefines {
  static constexpr char functions[] = R"cuda(
__device__ float value(float x) { return x > 0 ? x : expm1f(x); }
__device__ float derivative(float y) { return y > 0 ? 1.0f : y + 1; }
)cuda";
};

/// x * (1 + erf(x / sqrt(2))) / 2. Hendrycks and Gimpel, arXiv:1606.08415.
template <>
struct CudaText<GELUOp> : detail::cuda::NoDefines {
  // 1 + erf(z) as erfc(-z), which stays accurate far below zero; 0.3989.. = 1 / sqrt(2 pi).
  static constexpr char functions[] = R"cuda(
__device__ float value(float x) { return x * 0.5f * erfcf(x * -0.70710678f); }
__device__ float derivative(float x) {
  return 0.5f * erfcf(x * -0.70710678f) + x * 0.39894228f * expf(x * x * -0.5f);
}
)cuda";
};

/// x * sigmoid(x). exp(-x) would overflow before the result underflows.
template <>
struct CudaText<SiLUOp> : detail::cuda::NoDefines {
  static constexpr char functions[] = R"cuda(
__device__ float value(float x) {
  const float e = expf(-0.5f * fabsf(x)), part = x / (1 + e * e);
  return x > 0 ? part : part * e * e;
}
__device__ float derivative(float x) {
  const float s = 1 / (1 + expf(-x));
  return s * (1 + x * (1 - s));
}
)cuda";
};

/// 1 / (1 + exp(-x)).
template <>
struct CudaText<SigmoidOp> : detail::cuda::NoDefines {
  static constexpr char functions[] = R"cuda(
__device__ float value(float x) { return 1 / (1 + expf(-x)); }
__device__ float derivative(float y) { return y * (1 - y); }
)cuda";
};

/// tanh(x).
template <>
struct CudaText<TanhOp> : detail::cuda::NoDefines {
  static constexpr char functions[] = R"cuda(
__device__ float value(float x) { return tanhf(x); }
__device__ float derivative(float y) { return 1 - y * y; }
)cuda";
};

/// log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)), which does not overflow.
template <>
struct CudaText<SoftplusOp> : detail::cuda::NoDefines {
  static constexpr char functions[] = R"cuda(
__device__ float value(float x) { return (x > 0 ? x : 0.0f) + log1pf(expf(x > 0 ? -x : x)); }
__device__ float derivative(float y) { return -expm1f(-y); }
)cuda";
};

/// FACTOR * x + OFFSET.
template <>
struct CudaText<RescalingOp> {
  static constexpr char functions[] = R"cuda(
__device__ float value(float x) { return FACTOR * x + OFFSET; }
__device__ float derivative(float) { return FACTOR; }
)cuda";
  static std::array<CudaDefine, 2> defines(const RescalingOp& op) {
    return {{{"FACTOR", op.factor}, {"OFFSET", op.offset}}};
  }
};

static_assert(HasKernel<ReLUOp, Cuda> && HasKernel<GELUOp, Cuda> && HasKernel<RescalingOp, Cuda>);

}  // namespace lockstep
