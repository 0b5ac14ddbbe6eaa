/// \file
/// Activations at single points, against published values of the functions.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "lockstep/layers/layers.hpp"

namespace ls = lockstep;

namespace {

constexpr auto one = ls::shape(1);

bool near(double a, double b) { return std::abs(a - b) <= 1e-15 * std::max(1.0, std::abs(b)); }

}  // namespace

TEST_CASE("GELU is x times the normal distribution function") {
  const ls::GELUOp op{one};
  // Keras' constant 1 / sqrt(2) is a float, so this holds to seven digits; the golden test checks
  // ten.
  CHECK(std::abs(op.value(1.0) - 0.841344746068542949) < 1e-7);
  CHECK(std::abs(op.value(-2.0) + 2 * 0.022750131948179207) < 1e-7);
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

TEST_CASE("LeakyReLU has the slope of Keras' layer unless another is given") {
  CHECK(near(ls::LeakyReLU<>::op(one).slope, 0.3f));
  CHECK(near(ls::LeakyReLU<ls::negative_slope(0.25f)>::op(one).value(-2.0), -0.5));
}

TEST_CASE("ReLU and ReLU6 keep NaN, whose gradient is 0, and clip other numbers") {
  const ls::ReLUOp relu{one};
  const ls::ReLU6Op relu6{one};
  const double nan = std::nan("");
  CHECK(std::isnan(relu.value(nan)));
  CHECK(std::isnan(relu6.value(nan)));
  CHECK(relu.derivative(nan) == 0);
  CHECK(relu6.derivative(nan) == 0);
  CHECK(relu.value(-1.0) == 0);
  CHECK(relu.value(7.0) == 7);
  CHECK(relu6.value(-1.0) == 0);
  CHECK(relu6.value(5.0) == 5);
  CHECK(relu6.value(7.0) == 6);
}
