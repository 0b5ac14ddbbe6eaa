/// \file
/// Activations at single points, against published values of the functions.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <concepts>

#include "lockstep/layers/layers.hpp"
#include "lockstep/reference.hpp"
#include "support/exact_activations.hpp"

namespace ls = lockstep;

namespace {

constexpr auto one = ls::shape(1);

bool near(double a, double b) { return std::abs(a - b) <= 1e-15 * std::max(1.0, std::abs(b)); }

}  // namespace

TEST_CASE("GELU is x times the normal distribution function") {
  const ls::GELUOp op{one};
  CHECK(near(op.value(1.0), 0.841344746068542949));
  CHECK(near(op.value(-2.0), -2 * 0.022750131948179207));
  CHECK(std::abs(op.value(-10.0) * 1e23 + 7.619853024160527) < 1e-12);
  CHECK(op.value(0.0) == 0);
}

TEST_CASE("Sigmoid, silu, softplus and elu have the values of their formulas at 1") {
  CHECK(near(ls::SigmoidOp{one}.value(1.0), 0.731058578630004879));
  CHECK(near(ls::SiLUOp{one}.value(1.0), 0.731058578630004879));
  CHECK(near(ls::SoftplusOp{one}.value(1.0), 1.313261687518222834));
  CHECK(near(ls::ELUOp{one}.value(-1.0), -0.632120558828557678));
}

TEST_CASE("activations neither overflow nor lose small results far from zero") {
  CHECK(ls::SigmoidOp{one}.value(-1e4) == 0);
  CHECK(ls::SigmoidOp{one}.value(1e4) == 1);
  CHECK(ls::SiLUOp{one}.value(-1e4) == 0);
  CHECK(ls::SoftplusOp{one}.value(1e4) == 1e4);
  CHECK(near(ls::SoftplusOp{one}.value(-30.0) * 1e13, 0.935762296883973678));
  CHECK(near(ls::ELUOp{one}.value(-1e-12) * 1e12, -0.9999999999995));
  CHECK(ls::GELUOp{one}.value(-40.0) == 0);
}

TEMPLATE_TEST_CASE("the reference's activations are accurate from denormal numbers to overflow", "",
                   ls::ReLU, ls::ReLU6, ls::LeakyReLU<>, ls::ELU, ls::GELU, ls::SiLU, ls::Sigmoid,
                   ls::Tanh, ls::Softplus) {
  constexpr bool gelu = std::same_as<TestType, ls::GELU>;
  testing::is_exact<TestType, ls::Reference<float>>({gelu ? 2e-5 : 1e-6, 1e-6, 2e-38});
  // GELU's factor of 1e2 to 1e3 is the condition of erfc at -x / sqrt(2).
  testing::is_exact<TestType, ls::Reference<double>>({gelu ? 1e-12 : 1e-15, 4e-15, 1e-307});
}

TEST_CASE("LeakyReLU has the slope of Keras' layer unless another is given") {
  CHECK(near(ls::LeakyReLU<>::op(one).slope, 0.3f));
  CHECK(near(ls::LeakyReLU<ls::negative_slope(0.25f)>::op(one).value(-2.0), -0.5));
}

TEST_CASE("ReLU and ReLU6 keep NaN, which passes its gradient, and clip other numbers") {
  const ls::ReLUOp relu{one};
  const ls::ReLU6Op relu6{one};
  const double nan = std::nan("");
  CHECK(std::isnan(relu.value(nan)));
  CHECK(std::isnan(relu6.value(nan)));
  CHECK(relu.derivative(nan) == 1);
  CHECK(relu6.derivative(nan) == 1);
  CHECK(relu.value(-1.0) == 0);
  CHECK(relu.value(7.0) == 7);
  CHECK(relu6.value(-1.0) == 0);
  CHECK(relu6.value(5.0) == 5);
  CHECK(relu6.value(7.0) == 6);
}
