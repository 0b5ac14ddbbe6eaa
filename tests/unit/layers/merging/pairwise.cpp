/// \file
/// Element-by-element merges against their formulas, in double.
#include "lockstep/layers/merging/pairwise.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace ls = lockstep;

namespace {

using Double = ls::Reference<double>;
using Values = std::vector<double>;

testing::LayerResult<double> merge(const auto& op, const Values& x, const Values& x2,
                                   const Values& dy) {
  return testing::run_layer<Double>(op, 1, x, {}, dy, {.x2 = x2});
}

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();
constexpr ls::Shape in = ls::shape(2, 2);
const Values x{1.5, -2, 3, 0}, x2{4, 0.5, -3, 7}, dy{1, 10, 100, 1000};

}  // namespace

TEST_CASE("Multiply is the product") {
  const auto run = merge(ls::MultiplyOp{in}, x, x2, dy);
  CHECK(run.y == Values{6, -1, -9, 0});
  CHECK(run.dx == Values{4, 5, -300, 7000});
  CHECK(run.dx2 == Values{1.5, -20, 300, 0});
}

TEST_CASE("Subtract is the difference") {
  const auto run = merge(ls::SubtractOp{in}, x, x2, dy);
  CHECK(run.y == Values{-2.5, -2.5, 6, -7});
  CHECK(run.dx == dy);
  CHECK(run.dx2 == Values{-1, -10, -100, -1000});
}

TEST_CASE("Average is the sum divided by the number of branches") {
  const auto run = merge(ls::AverageOp{in}, x, x2, dy);
  CHECK(run.y == Values{2.75, -0.75, 0, 3.5});
  CHECK(run.dx == Values{0.5, 5, 50, 500});
  CHECK(run.dx2 == run.dx);
}

TEST_CASE("Maximum and Minimum pass the gradient to the larger and the smaller value") {
  const auto larger = merge(ls::MaximumOp{in}, x, x2, dy);
  CHECK(larger.y == Values{4, 0.5, 3, 7});
  CHECK(larger.dx == Values{0, 0, 100, 0});
  CHECK(larger.dx2 == Values{1, 10, 0, 1000});
  const auto smaller = merge(ls::MinimumOp{in}, x, x2, dy);
  CHECK(smaller.y == Values{1.5, -2, -3, 0});
  CHECK(smaller.dx == Values{1, 10, 0, 1000});
  CHECK(smaller.dx2 == Values{0, 0, 100, 0});
}

TEST_CASE("Maximum and Minimum pass the gradient of equal values to the first branch") {
  const auto check = [](const auto& op) {
    const auto run = merge(op, {2, 0}, {2, -0.0}, {5, 7});
    CHECK(run.dx == Values{5, 7});
    CHECK(run.dx2 == Values{0, 0});
  };
  check(ls::MaximumOp{ls::shape(2)});
  check(ls::MinimumOp{ls::shape(2)});
}

TEST_CASE("Maximum and Minimum pass NaN and its gradient") {
  const auto check = [](const auto& op) {
    const auto run = merge(op, {no_number, 1, no_number}, {1, no_number, no_number}, {5, 7, 9});
    for (const double y : run.y) CHECK(std::isnan(y));
    CHECK(run.dx == Values{5, 0, 9});
    CHECK(run.dx2 == Values{0, 7, 0});
  };
  check(ls::MaximumOp{ls::shape(3)});
  check(ls::MinimumOp{ls::shape(3)});
}
