/// \file
#include "lockstep/layers/layers.hpp"
#include "unit/devices/cuda/compare.hpp"

#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>
#include <cmath>
#include <limits>

using namespace lockstep;
using namespace testing;

namespace {
/// An activation that the device knows nothing of.
struct CubeOp {
  static constexpr bool from_y = false;
  Shape in;
  float factor = 2;
  constexpr Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    return T(factor) * x * x * x;
  }
  template <class T>
  T derivative(T x) const {
    return T(factor) * 3 * x * x;
  }
  bool operator==(const CubeOp&) const = default;
};
struct Cube : ParameterlessLayer<CubeOp> {
  static constexpr CubeOp op(Shape in) { return {in, 0.5f}; }
};
/// One without a text.
struct SquareOp {
  static constexpr bool from_y = false;
  Shape in;
  constexpr Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    return x * x;
  }
  template <class T>
  T derivative(T x) const {
    return 2 * x;
  }
  bool operator==(const SquareOp&) const = default;
};
}  // namespace

template <>
struct lockstep::CudaText<CubeOp> {
  static constexpr char functions[] = R"cuda(
__device__ float value(float x) { return CUBE_FACTOR * x * x * x; }
__device__ float derivative(float x) { return CUBE_FACTOR * 3 * x * x; }
)cuda";
  static std::array<CudaDefine, 1> defines(const CubeOp& op) {
    return {{{"CUBE_FACTOR", op.factor}}};
  }
};

static_assert(HasKernel<CubeOp, Cuda> && !HasKernel<SquareOp, Cuda>);

TEMPLATE_TEST_CASE("activations of generated shapes agree with the reference, also far from zero",
                   "", ReLU, ReLU6, LeakyReLU<>, LeakyReLU<negative_slope(0.2f)>, ELU, GELU, SiLU,
                   Sigmoid, Tanh, Softplus, (Rescaling<factor(1 / 127.5), offset(-1)>), Cube) {
  Philox g(6);
  for (int i = 0; i < generated_shapes; ++i) {
    const auto op = TestType::op(shape(between(g, 1, 9), between(g, 1, 9), between(g, 1, 20)));
    const auto count = static_cast<std::size_t>(between(g, 0, 5));
    const double spread = one_of(g, 1, 10, 100, 1000) * 0.1;
    INFO(to_string(op.in) << ", numbers up to about " << 3 * spread);
    const Numbers n = numbers(op, op.in.size(), 0, count, spread);
    check_against_reference(op, count, n, norm(n.dy));
  }
}

TEMPLATE_TEST_CASE("each activation is exact enough in small ranges of its own", "", ReLU, ReLU6,
                   LeakyReLU<>, ELU, GELU, SiLU, Sigmoid, Tanh, Softplus) {
  TestGpu gpu;
  const auto op = TestType::op(shape(1000));
  for (const double centre : {-30.0, -12.0, -5.0, -1.0, -1e-3, 1e-3, 1.0, 5.0, 12.0, 30.0}) {
    INFO("around " << centre);
    Numbers n = numbers(op, 1000, 0, 1);
    for (float& x : n.x) x = static_cast<float>(centre * (1 + 0.05 * static_cast<double>(x)));
    const auto expected = run<Reference<double>>(op, 1, n);
    const auto result = run<Cuda>(op, 1, n);
    double y_error = 0, dx_error = 0;
    for (std::size_t i = 0; i < 1000; ++i) {
      y_error = std::max(y_error, std::abs(static_cast<double>(result.y[i]) - expected.y[i]));
      dx_error = std::max(dx_error, std::abs(static_cast<double>(result.dx[i]) - expected.dx[i]));
    }
    CHECK(y_error < 1e-6 * std::max(1.0, std::abs(centre)));
    CHECK(dx_error < 2e-6);
  }
}

TEMPLATE_TEST_CASE("activations keep their digits far below zero", "", ELU, GELU, SiLU, Sigmoid,
                   Softplus) {
  TestGpu gpu;
  const auto op = TestType::op(shape(7));
  const Numbers n{{-2, -3, -5, -7, -9, -10, -12}, {}, std::vector<float>(7, 1.0f), {}};
  const auto result = run<Cuda>(op, 1, n);
  for (std::size_t i = 0; i < 7; ++i) {
    const double x = static_cast<double>(n.x[i]);
    // 1 + erf(z) of the op has no digits left here, in double either below -8.
    const double expected =
        std::is_same_v<TestType, GELU> ? x * 0.5 * std::erfc(-x * std::sqrt(0.5)) : op.value(x);
    CHECK(std::abs(static_cast<double>(result.y[i]) / expected - 1) < 1e-4);
  }
}

TEMPLATE_TEST_CASE("rectifiers keep NaN", "", ReLU, ReLU6, LeakyReLU<>) {
  TestGpu gpu;
  const auto op = TestType::op(shape(2));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto result = run<Cuda>(op, 1, Numbers{{nan, 1}, {}, {1, 1}, {}});
  CHECK(std::isnan(result.y[0]));
  CHECK(result.y[1] == 1);
}

TEST_CASE("the gradient of re_lu6 is zero at both ends") {
  TestGpu gpu;
  const auto op = ReLU6::op(shape(4));
  const auto result = run<Cuda>(op, 1, Numbers{{0, 6, 3, 7}, {}, {1, 1, 1, 1}, {}});
  CHECK(result.y == std::vector<float>{0, 6, 3, 6});
  CHECK(result.dx == std::vector<float>{0, 0, 1, 0});
}
