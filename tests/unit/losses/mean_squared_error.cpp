#include "lockstep/losses/mean_squared_error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "lockstep/reference.hpp"
#include "support/run_loss.hpp"

namespace ls = lockstep;
using Double = ls::Reference<double>;

TEST_CASE("Mean squared error is the mean over an example, summed over examples") {
  const auto op = ls::MeanSquaredError{}.op(ls::shape(2));
  const auto run = testing::run_loss<Double>(op, 2, {1, 2, 3, 4}, {0, 0, 3, 2}, 0.5);
  CHECK(run.sum == (1.0 + 4.0) / 2 + (0.0 + 4.0) / 2);
  CHECK(run.gradient == std::vector<double>{0.5, 1, 0, 1});
}

TEST_CASE("Mean squared error has the gradient of its value") {
  const auto op = ls::MeanSquaredError{}.op(ls::shape(2, 3));
  auto p = testing::normal_values(12, 1);
  const auto t = testing::normal_values(12, 2);
  const auto gradient = testing::run_loss<Double>(op, 2, p, t, 1.0 / 3).gradient;
  std::vector<double> numeric(p.size());
  constexpr double h = 1e-5;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double value = p[i];
    p[i] = value + h;
    const double above = testing::run_loss<Double>(op, 2, p, t, 1).sum;
    p[i] = value - h;
    numeric[i] = (above - testing::run_loss<Double>(op, 2, p, t, 1).sum) / (2 * h) / 3;
    p[i] = value;
  }
  CHECK(testing::relative_error(gradient, numeric) < 1e-8);
}

TEST_CASE("Mean squared error takes targets of the predictions' shape") {
  STATIC_CHECK(ls::MeanSquaredError::target_shape(ls::shape(4, 2)) == ls::shape(4, 2));
  STATIC_CHECK(ls::MeanSquaredError::accepts(ls::shape()));
}
