#include "lockstep/losses/mean_squared_error.hpp"

#include <catch2/catch_test_macros.hpp>

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

TEST_CASE("Mean squared error has targets of the predictions' shape") {
  STATIC_CHECK(ls::MeanSquaredError::target_shape(ls::shape(4, 2)) == ls::shape(4, 2));
  STATIC_CHECK(ls::MeanSquaredError::accepts(ls::shape()));
}
