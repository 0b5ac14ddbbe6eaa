/// \file
/// Terms of the losses that are a mean over elements, on a GPU: `term(p, t)` is the loss of one
/// element and its derivative with respect to the prediction p. The formulas are those of
/// losses/*.hpp.
#pragma once

#include <array>

#include "lockstep/devices/cuda/ops/loss.hpp"
#include "lockstep/losses/binary_crossentropy.hpp"
#include "lockstep/losses/hinge.hpp"
#include "lockstep/losses/huber.hpp"
#include "lockstep/losses/log_cosh.hpp"
#include "lockstep/losses/mean_absolute_error.hpp"
#include "lockstep/losses/mean_squared_error.hpp"
#include "lockstep/losses/poisson.hpp"

namespace lockstep {

/// (p - t)^2.
template <>
struct CudaText<MeanSquaredErrorOp> {
  static constexpr bool elementwise = true;
  static constexpr char functions[] = R"cuda(
struct Term { double value; float slope; };  // e^2 of a float overflows in float
__device__ Term term(float p, float t) {
  const float e = p - t;
  const Term one = {(double)e * e, 2 * e};
  return one;
}
)cuda";
  static std::array<CudaDefine, 1> defines(const MeanSquaredErrorOp&) {
    return {{{"ELEMENTWISE", 1}}};
  }
};

/// p - t|; the slope at 0 is 0.
template <>
struct CudaText<AbsoluteErrorRule> {
  static constexpr char functions[] = R"cuda(
struct Term { float value, slope; };
__device__ Term term(float p, float t) {
  const float e = p - t;
  const Term one = {fabsf(e), e > 0 ? 1.0f : e < 0 ? -1.0f : e == 0 ? 0.0f : e};
  return one;
}
)cuda";
  static std::array<CudaDefine, 0> defines(const AbsoluteErrorRule&) { return {}; }
};

/// e^2 / 2 for |e| <= DELTA, else DELTA * |e| - DELTA^2 / 2, with e = p - t.
template <>
struct CudaText<HuberRule> {
  static constexpr char functions[] = R"cuda(
struct Term { float value, slope; };
__device__ Term term(float p, float t) {
  const float e = p - t, size = fabsf(e);
  const Term near = {0.5f * e * e, e};
  const Term far = {DELTA * (size - 0.5f * DELTA), e > 0 ? DELTA : e < 0 ? -DELTA : e};
  return size <= DELTA ? near : far;
}
)cuda";
  static std::array<CudaDefine, 1> defines(const HuberRule& rule) {
    return {{{"DELTA", rule.delta}}};
  }
};

/// log(cosh(e)), in the two forms of LogCoshRule.
template <>
struct CudaText<LogCoshRule> {
  static constexpr char functions[] = R"cuda(
struct Term { float value, slope; };
__device__ Term term(float p, float t) {
  const float e = p - t, size = fabsf(e), half = sinhf(size < 1 ? 0.5f * e : 0.0f);
  const Term one = {size < 1 ? log1pf(2 * half * half)
                             : size + log1pf(expf(-2 * size)) - 0.693147180559945309f,
                    tanhf(e)};
  return one;
}
)cuda";
  static std::array<CudaDefine, 0> defines(const LogCoshRule&) { return {}; }
};

/// p - t * log(p + 1e-7).
template <>
struct CudaText<PoissonRule> {
  static constexpr char functions[] = R"cuda(
struct Term { float value, slope; };
__device__ Term term(float p, float t) {
  const float shifted = p + 1e-7f;
  const Term one = {p - t * logf(shifted), 1 - t / shifted};
  return one;
}
)cuda";
  static std::array<CudaDefine, 0> defines(const PoissonRule&) { return {}; }
};

/// max(0, 1 - t * p); targets of 0 count as -1.
template <>
struct CudaText<HingeRule> {
  static constexpr char functions[] = R"cuda(
struct Term { float value, slope; };
__device__ Term term(float p, float t) {
  const float sign = t == 0 ? -1.0f : t, margin = 1 - sign * p;
  const Term one = {margin < 0 ? 0.0f : margin, margin < 0 ? 0.0f : margin >= 0 ? -sign : margin};
  return one;
}
)cuda";
  static std::array<CudaDefine, 0> defines(const HingeRule&) { return {}; }
};

/// -(t log(p) + (1 - t) log(1 - p)), with smoothed targets. From logits max(p, 0) - p * t + log(1 +
/// exp(-|p|)), which does not overflow; else p is clipped to [1e-7, 1 - 1e-7].
template <>
struct CudaText<BinaryCrossentropyRule> {
  static constexpr char functions[] = R"cuda(
struct Term { float value, slope; };
__device__ Term term(float p, float target) {
  const float t = target * (1.0f - SMOOTHING) + SMOOTHING / 2;
#if FROM_LOGITS
  const float e = expf(-fabsf(p));
  const Term one = {(p < 0 ? 0.0f : p) - p * t + log1pf(e), (p < 0 ? e : 1.0f) / (1 + e) - t};
#else
  const float low = 1e-7f, high = 1.0f - 1e-7f, c = p < low ? low : p > high ? high : p;
  const Term one = {-(t * logf(c) + (1 - t) * logf(1 - c)),
                    p < low || p > high ? 0.0f : (1 - t) / (1 - c) - t / c};
#endif
  return one;
}
)cuda";
  static std::array<CudaDefine, 2> defines(const BinaryCrossentropyRule& rule) {
    return {{{"FROM_LOGITS", rule.from_logits ? 1 : 0}, {"SMOOTHING", rule.smoothing}}};
  }
};

static_assert(HasKernel<MeanSquaredErrorOp, Cuda> &&
              HasKernel<ElementwiseLossOp<AbsoluteErrorRule>, Cuda> &&
              HasKernel<ElementwiseLossOp<HuberRule>, Cuda> &&
              HasKernel<ElementwiseLossOp<LogCoshRule>, Cuda> &&
              HasKernel<ElementwiseLossOp<PoissonRule>, Cuda> &&
              HasKernel<ElementwiseLossOp<HingeRule>, Cuda> &&
              HasKernel<ElementwiseLossOp<BinaryCrossentropyRule>, Cuda>);

}  // namespace lockstep
