/// \file
/// The update rules of the element-wise optimizers as text for the GPU. Each `Rule` has one
/// overload per number of slots and is laid out as `Op::Rule<float>`, which is passed by value;
/// formulas and sources are those of optimizers/*.hpp. `rest_1` is 1 - beta_1.
#pragma once

#include <array>

#include "lockstep/devices/cuda/ops/optimizer.hpp"
#include "lockstep/optimizers/adadelta.hpp"
#include "lockstep/optimizers/adagrad.hpp"
#include "lockstep/optimizers/adam.hpp"
#include "lockstep/optimizers/adamax.hpp"
#include "lockstep/optimizers/ftrl.hpp"
#include "lockstep/optimizers/lion.hpp"
#include "lockstep/optimizers/nadam.hpp"
#include "lockstep/optimizers/rmsprop.hpp"
#include "lockstep/optimizers/sgd.hpp"

namespace lockstep {

/// v = momentum * v - rate * g; w += v, or with Nesterov w += momentum * v - rate * g. Without a
/// slot w -= rate * g.
template <>
struct CudaText<SGDOp> {
  static constexpr char functions[] = R"cuda(
struct Rule {
  float rate, momentum;
  bool nesterov;
  __device__ void operator()(float& w, float g) const { w -= rate * g; }
  __device__ void operator()(float& w, float g, float& v) const {
    v = momentum * v - rate * g;
    w += nesterov ? momentum * v - rate * g : v;
  }
};
)cuda";
  static std::array<CudaDefine, 0> defines(const SGDOp&) { return {}; }
};

/// m += (1 - beta_1) * (g - m), v += (1 - beta_2) * (g^2 - v), w -= rate * m / (sqrt(v) + epsilon);
/// `rate` includes the bias correction. The third slot is AMSGrad's maximum of v. Kingma and Ba,
/// arXiv:1412.6980; Reddi et al., arXiv:1904.09237.
template <>
struct CudaText<AdamOp> {
  static constexpr char functions[] = R"cuda(
struct Rule {
  float rate, rest_1, rest_2, epsilon;
  __device__ void operator()(float& w, float g, float& m, float& v) const {
    m += (g - m) * rest_1;
    v += (g * g - v) * rest_2;
    w -= rate * m / (sqrtf(v) + epsilon);
  }
  __device__ void operator()(float& w, float g, float& m, float& v, float& largest) const {
    m += (g - m) * rest_1;
    v += (g * g - v) * rest_2;
    largest = largest > v ? largest : v;
    w -= rate * m / (sqrtf(largest) + epsilon);
  }
};
)cuda";
  static std::array<CudaDefine, 0> defines(const AdamOp&) { return {}; }
};

/// Adam with the infinity norm: u = max(beta_2 * u, |g|), w -= rate * m / (u + epsilon).
template <>
struct CudaText<AdamaxOp> {
  static constexpr char functions[] = R"cuda(
struct Rule {
  float rate, rest_1, beta_2, epsilon;
  __device__ void operator()(float& w, float g, float& m, float& u) const {
    const float size = fabsf(g), faded = beta_2 * u;
    m += (g - m) * rest_1;
    u = faded > size ? faded : size;
    w -= rate * m / (u + epsilon);
  }
};
)cuda";
  static std::array<CudaDefine, 0> defines(const AdamaxOp&) { return {}; }
};

/// Adam with Nesterov momentum: w -= (of_m * m + of_g * g) / (root * sqrt(v) + epsilon), with the
/// schedule's factors computed on the host. Dozat, 2016.
template <>
struct CudaText<NadamOp> {
  static constexpr char functions[] = R"cuda(
struct Rule {
  float of_m, of_g, root, rest_1, rest_2, epsilon;
  __device__ void operator()(float& w, float g, float& m, float& v) const {
    m += (g - m) * rest_1;
    v += (g * g - v) * rest_2;
    w -= (of_m * m + of_g * g) / (sqrtf(v) * root + epsilon);
  }
};
)cuda";
  static std::array<CudaDefine, 0> defines(const NadamOp&) { return {}; }
};

/// v = rho * v + (1 - rho) * g^2, w -= rate * g / sqrt(v + epsilon). Optional slots hold the
/// momentum and, if centered, the mean of g, whose square is subtracted from v.
template <>
struct CudaText<RMSpropOp> {
  static constexpr char functions[] = R"cuda(
struct Rule {
  float rate, rho, rest, momentum, epsilon;
  bool centered;
  __device__ void operator()(float& w, float g, float& v) const {
    v = rho * v + rest * (g * g);
    w -= rate * g / sqrtf(v + epsilon);
  }
  __device__ void operator()(float& w, float g, float& v, float& other) const {
    v = rho * v + rest * (g * g);
    if (centered) {
      other = rho * other + rest * g;
      w -= rate * g / sqrtf(v - other * other + epsilon);
    } else {
      other = momentum * other + rate * g / sqrtf(v + epsilon);
      w -= other;
    }
  }
  __device__ void operator()(float& w, float g, float& v, float& m, float& mean) const {
    v = rho * v + rest * (g * g);
    mean = rho * mean + rest * g;
    m = momentum * m + rate * g / sqrtf(v - mean * mean + epsilon);
    w -= m;
  }
};
)cuda";
  static std::array<CudaDefine, 0> defines(const RMSpropOp&) { return {}; }
};

/// sum += g^2, w -= rate * g / sqrt(sum + epsilon).
template <>
struct CudaText<AdagradOp> {
  static constexpr char functions[] = R"cuda(
struct Rule {
  float rate, epsilon;
  __device__ void operator()(float& w, float g, float& sum) const {
    sum += g * g;
    w -= rate * g / sqrtf(sum + epsilon);
  }
};
)cuda";
  static std::array<CudaDefine, 0> defines(const AdagradOp&) { return {}; }
};

/// w -= rate * update with update = g * sqrt(updates + epsilon) / sqrt(squares + epsilon); both
/// slots are moving averages of squares. Zeiler, arXiv:1212.5701.
template <>
struct CudaText<AdadeltaOp> {
  static constexpr char functions[] = R"cuda(
struct Rule {
  float rate, rho, rest, epsilon;
  __device__ void operator()(float& w, float g, float& squares, float& updates) const {
    squares = rho * squares + rest * (g * g);
    const float update = sqrtf(updates + epsilon) * g / sqrtf(squares + epsilon);
    updates = rho * updates + rest * (update * update);
    w -= rate * update;
  }
};
)cuda";
  static std::array<CudaDefine, 0> defines(const AdadeltaOp&) { return {}; }
};

/// Follow the regularised leader, proximal. `linear` is clipped to [-l1, l1] and divided by the
/// quadratic term, so that small weights become exactly 0. McMahan et al., KDD 2013.
template <>
struct CudaText<FtrlOp> {
  static constexpr char functions[] = R"cuda(
struct Rule {
  float rate, power, l1, l2, shrinkage;
  // A difference of two such powers follows, so exactness matters: sqrtf is exact, powf is not.
  __device__ float raised(float x) const { return power == 0.5f ? sqrtf(x) : powf(x, power); }
  __device__ void operator()(float& w, float g, float& squares, float& linear) const {
    const float sum = squares + g * g, root = raised(sum);
    linear += g + 2 * shrinkage * w - (root - raised(squares)) / rate * w;
    const float cut = linear < -l1 ? -l1 : linear > l1 ? l1 : linear;
    w = (cut - linear) / (root / rate + 2 * l2);
    squares = sum;
  }
};
)cuda";
  static std::array<CudaDefine, 0> defines(const FtrlOp&) { return {}; }
};

/// w -= rate * sign(beta_1 * m + (1 - beta_1) * g), then m = beta_2 * m + (1 - beta_2) * g. Chen et
/// al., arXiv:2302.06675.
template <>
struct CudaText<LionOp> {
  static constexpr char functions[] = R"cuda(
struct Rule {
  float rate, beta_1, rest_1, beta_2, rest_2;
  __device__ void operator()(float& w, float g, float& m) const {
    const float direction = m * beta_1 + g * rest_1;
    w -= direction > 0 ? rate : direction < 0 ? -rate : direction;  // keeps NaN
    m = m * beta_2 + g * rest_2;
  }
};
)cuda";
  static std::array<CudaDefine, 0> defines(const LionOp&) { return {}; }
};

static_assert(HasKernel<SGDOp, Cuda> && HasKernel<AdamOp, Cuda> && HasKernel<AdamaxOp, Cuda> &&
              HasKernel<NadamOp, Cuda> && HasKernel<RMSpropOp, Cuda> &&
              HasKernel<AdagradOp, Cuda> && HasKernel<AdadeltaOp, Cuda> &&
              HasKernel<FtrlOp, Cuda> && HasKernel<LionOp, Cuda>);

}  // namespace lockstep
