/// \file
#include "unit/devices/cuda/compare.hpp"

#include <array>
#include <cmath>
#include <limits>

#include "support/cube.hpp"

template <>
struct lockstep::CudaText<testing::CubeOp> {
  static constexpr char functions[] = R"cuda(
__device__ float value(float x) { return CUBE_FACTOR * x * x * x; }
__device__ float derivative(float x) { return CUBE_FACTOR * 3 * x * x; }
)cuda";
  static std::array<CudaDefine, 1> defines(const testing::CubeOp& op) {
    return {{{"CUBE_FACTOR", op.factor}}};
  }
};

#include "unit/devices/pointwise.hpp"

namespace {
/// An op without a text.
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

static_assert(HasKernel<CubeOp, Cuda> && !HasKernel<SquareOp, Cuda>);

TEMPLATE_TEST_CASE("activations keep their digits far below zero", "", ELU, GELU, SiLU, Sigmoid,
                   Softplus) {
  TestGpu gpu;
  const auto op = TestType::op(shape(7));
  const Numbers n{{-2, -3, -5, -7, -9, -10, -12}, {}, std::vector<float>(7, 1.0f), {}};
  const auto result = run<Cuda>(op, 1, n);
  for (std::size_t i = 0; i < 7; ++i) {
    const double x = static_cast<double>(n.x[i]);
    // The op's 1 + erf(z) has no accurate digits here, not even in double below -8.
    const double expected =
        std::is_same_v<TestType, GELU> ? x * 0.5 * std::erfc(-x * std::sqrt(0.5)) : op.value(x);
    CHECK(std::abs(static_cast<double>(result.y[i]) / expected - 1) < 1e-4);
  }
}

TEMPLATE_TEST_CASE("rectifiers preserve NaN", "", ReLU, ReLU6, LeakyReLU<>) {
  TestGpu gpu;
  const auto op = TestType::op(shape(2));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto result = run<Cuda>(op, 1, Numbers{{nan, 1}, {}, {1, 1}, {}});
  CHECK(std::isnan(result.y[0]));
  CHECK(result.y[1] == 1);
}
