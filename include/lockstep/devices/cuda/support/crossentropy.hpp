/// \file
/// Row functions of the losses between class distributions, and of cosine similarity, on a GPU. A
/// warp computes a row: lane k, k + 32, ... handle classes k, k + 32, .... Sums are in double.
/// Gradients, times `scale`:
///
///     sparse crossentropy, logits    softmax(p)_k - [k = y]
///     crossentropy, logits           sum(t) * softmax(p)_k - t_k, with smoothed targets t
///     probabilities                  clipped to [1e-7, 1 - 1e-7]; clipped values have no slope
#pragma once

#include <array>

#include "lockstep/devices/cuda/ops/loss.hpp"
#include "lockstep/losses/categorical_crossentropy.hpp"
#include "lockstep/losses/cosine_similarity.hpp"
#include "lockstep/losses/kl_divergence.hpp"
#include "lockstep/losses/sparse_categorical_crossentropy.hpp"

namespace lockstep {

/// log(sum(exp(p))) - p_y from logits, shifted by the maximum so that no exponential overflows;
/// else log(sum(p)) - log(p_y).
template <>
struct CudaText<SparseCategoricalCrossentropyOp> {
  static constexpr char functions[] = R"cuda(
__device__ float row(const float* p, const Target* t, float* g, float scale, int lane) {
  const int y = *t;
#if FROM_LOGITS
  float largest = p[0];
  double all = 0;
  for (int k = lane; k < SIZE; k += 32) largest = fmaxf(largest, p[k]);
  largest = warp_max(largest);
  for (int k = lane; k < SIZE; k += 32) all += expf(p[k] - largest);
  const float sum = (float)warp_sum(all);
  if (g) {
    const float factor = scale / sum;
    for (int k = lane; k < SIZE; k += 32)
      g[k] = expf(p[k] - largest) * factor - (k == y ? scale : 0.0f);
  }
  return logf(sum) + (largest - p[y]);
#else
  const float low = 1e-7f, high = 1.0f - 1e-7f;
  double all = 0;
  for (int k = lane; k < SIZE; k += 32) all += p[k] < low ? low : p[k] > high ? high : p[k];
  const float sum = (float)warp_sum(all);
  const float chosen = p[y] < low ? low : p[y] > high ? high : p[y];
  if (g)
    for (int k = lane; k < SIZE; k += 32) {
      const float slope = 1 / sum - (k == y ? 1 / chosen : 0.0f);
      g[k] = p[k] < low || p[k] > high ? 0.0f : slope * scale;
    }
  return logf(sum) - logf(chosen);
#endif
}
)cuda";
  static std::array<CudaDefine, 1> defines(const SparseCategoricalCrossentropyOp& op) {
    return {{{"FROM_LOGITS", op.from_logits ? 1 : 0}}};
  }
};

/// sum over classes of -t_k * log(softmax(p)_k), with smoothed targets; without logits p / sum(p)
/// replaces the softmax.
template <>
struct CudaText<CategoricalCrossentropyOp> {
  static constexpr char functions[] = R"cuda(
__device__ float smoothed(float t) { return t * (1.0f - SMOOTHING) + SMOOTHING / SIZE; }
__device__ float row(const float* p, const Target* t, float* g, float scale, int lane) {
#if FROM_LOGITS
  float largest = p[0];
  double all = 0, of_targets = 0, of_products = 0;
  for (int k = lane; k < SIZE; k += 32) largest = fmaxf(largest, p[k]);
  largest = warp_max(largest);
  for (int k = lane; k < SIZE; k += 32) {
    const float one = smoothed(t[k]);
    all += expf(p[k] - largest);
    of_targets += one;
    of_products += one * (p[k] - largest);
  }
  const float sum = (float)warp_sum(all), whole = (float)warp_sum(of_targets);
  const float inner = (float)warp_sum(of_products);
  if (g)
    for (int k = lane; k < SIZE; k += 32)
      g[k] = scale * (whole * expf(p[k] - largest) / sum - smoothed(t[k]));
  return whole * logf(sum) - inner;
#else
  const float low = 1e-7f, high = 1.0f - 1e-7f;
  double all = 0, loss = 0, of_products = 0;
  for (int k = lane; k < SIZE; k += 32) all += p[k];
  const float sum = (float)warp_sum(all);
  for (int k = lane; k < SIZE; k += 32) {
    const float q = p[k] / sum, c = q < low ? low : q > high ? high : q, one = smoothed(t[k]);
    loss -= one * logf(c);
    of_products += q < low || q > high ? 0.0f : one / c * q;
  }
  const float inner = (float)warp_sum(of_products);
  if (g)
    for (int k = lane; k < SIZE; k += 32) {
      const float q = p[k] / sum;
      g[k] = scale * (inner - (q < low || q > high ? 0.0f : smoothed(t[k]) / q)) / sum;
    }
  return (float)warp_sum(loss);
#endif
}
)cuda";
  static std::array<CudaDefine, 2> defines(const CategoricalCrossentropyOp& op) {
    return {{{"FROM_LOGITS", op.from_logits ? 1 : 0}, {"SMOOTHING", op.smoothing}}};
  }
};

/// sum over classes of t_k * log(t_k / p_k), both clipped to [1e-7, 1].
template <>
struct CudaText<KLDivergenceOp> {
  static constexpr char functions[] = R"cuda(
__device__ float clipped(float v) { return v < 1e-7f ? 1e-7f : v > 1.0f ? 1.0f : v; }
__device__ float row(const float* p, const Target* t, float* g, float scale, int lane) {
  double sum = 0;
  for (int k = lane; k < SIZE; k += 32) {
    const float is = clipped(t[k]), q = clipped(p[k]);
    sum += is * logf(is / q);
    if (g) g[k] = p[k] < 1e-7f || p[k] > 1.0f ? 0.0f : -scale * is / q;
  }
  return (float)warp_sum(sum);
}
)cuda";
  static std::array<CudaDefine, 0> defines(const KLDivergenceOp&) { return {}; }
};

/// -p * t / (|p| * |t|), with norms of at least 1e-7. The gradient is the part of t orthogonal to
/// p.
template <>
struct CudaText<CosineSimilarityOp> {
  static constexpr char functions[] = R"cuda(
__device__ float row(const float* p, const Target* t, float* g, float scale, int lane) {
  double pp = 0, tt = 0, pt = 0;
  for (int k = lane; k < SIZE; k += 32) {
    pp += (double)p[k] * p[k];
    tt += (double)t[k] * t[k];
    pt += (double)p[k] * t[k];
  }
  const double p_norm = sqrt(warp_sum(pp)), t_norm = sqrt(warp_sum(tt)), least = 1e-7;
  const double p_size = p_norm < least ? least : p_norm, t_size = t_norm < least ? least : t_norm;
  const double cosine = warp_sum(pt) / p_size / t_size;
  if (g) {
    const double along = p_norm < least ? 0.0 : cosine / p_size;
    for (int k = lane; k < SIZE; k += 32)
      g[k] = (float)(scale * (along * p[k] - t[k] / t_size) / p_size);
  }
  return (float)-cosine;
}
)cuda";
  static std::array<CudaDefine, 0> defines(const CosineSimilarityOp&) { return {}; }
};

static_assert(HasKernel<SparseCategoricalCrossentropyOp, Cuda> &&
              HasKernel<CategoricalCrossentropyOp, Cuda> && HasKernel<KLDivergenceOp, Cuda> &&
              HasKernel<CosineSimilarityOp, Cuda>);

}  // namespace lockstep
