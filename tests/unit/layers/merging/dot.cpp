/// \file
/// Dot against its formula, in double.
#include "lockstep/layers/merging/dot.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace ls = lockstep;

namespace {

using Values = std::vector<double>;

testing::LayerResult<double> dot(const ls::DotOp& op, const Values& x, const Values& x2,
                                 const Values& dy) {
  return testing::run_layer<ls::Reference<double>>(op, 1, x, {}, dy, {.x2 = x2});
}

}  // namespace

TEST_CASE("Dot of two vectors is a number") {
  const auto run = dot(ls::Dot<1>::op(ls::shape(3), ls::shape(3)), {1, 2, 3}, {4, -5, 6}, {2});
  CHECK(run.y == Values{12});
  CHECK(run.dx == Values{8, -10, 12});
  CHECK(run.dx2 == Values{2, 4, 6});
}

TEST_CASE("Dot of the last axis of x and the first of x2 is the matrix product") {
  const auto op = ls::Dot<ls::axes(2, 1)>::op(ls::shape(2, 3), ls::shape(3, 2));
  REQUIRE(op.out() == ls::shape(2, 2));
  const auto run = dot(op, {1, 2, 3, 4, 5, 6}, {1, 0, -1, 2, 3, 1}, {1, 10, 100, 1000});
  CHECK(run.y == Values{8, 7, 17, 16});
  CHECK(run.dx == Values{1, 19, 13, 100, 1900, 1300});
  CHECK(run.dx2 == Values{401, 4010, 502, 5020, 603, 6030});
}

TEST_CASE("Dot keeps the other axes of both values, in order") {
  // x (2, 2, 2) along its second axis, x2 (2) along its only one.
  const auto op = ls::Dot<ls::axes(2, -1)>::op(ls::shape(2, 2, 2), ls::shape(2));
  REQUIRE(op.out() == ls::shape(2, 2));
  const auto run = dot(op, {1, 2, 3, 4, 5, 6, 7, 8}, {10, 1}, {1, 2, 3, 4});
  CHECK(run.y == Values{13, 24, 57, 68});
  CHECK(run.dx == Values{10, 20, 1, 2, 30, 40, 3, 4});
  CHECK(run.dx2 == Values{1 + 4 + 15 + 24, 3 + 8 + 21 + 32});
}

TEST_CASE("Normalized Dot is the cosine") {
  const auto op = ls::Dot<-1, ls::normalize>::op(ls::shape(2), ls::shape(2));
  const auto run = dot(op, {3, 4}, {0, 2}, {1});
  CHECK(testing::relative_error(run.y, Values{0.8}) < 1e-15);
  // The derivative by x: (x2' - cosine x') / |x|, where x' and x2' have length 1.
  CHECK(testing::relative_error(run.dx, Values{-0.8 * 0.6 / 5, (1 - 0.8 * 0.8) / 5}) < 1e-14);
  CHECK(testing::relative_error(run.dx2, Values{0.6 / 2, 0}) < 1e-14);
}

TEST_CASE("Normalized Dot divides short vectors by 1e-7") {
  const auto op = ls::Dot<-1, ls::normalize>::op(ls::shape(2), ls::shape(2));
  const auto run = dot(op, {0, 1e-9}, {0, 2}, {1});
  CHECK(testing::relative_error(run.y, Values{0.01}) < 1e-14);
  CHECK(testing::relative_error(run.dx, Values{0, 1e7}) < 1e-14);
  const auto zero = dot(op, {0, 0}, {0, 2}, {1});
  CHECK(zero.y == Values{0});
  CHECK(testing::relative_error(zero.dx, Values{0, 1e7}) < 1e-14);
}
