#include "lockstep/losses/sparse_categorical_crossentropy.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "lockstep/reference.hpp"
#include "support/run_loss.hpp"

namespace ls = lockstep;

namespace {

using Double = ls::Reference<double>;

double run_sum(bool from_logits, const std::vector<double>& p,
               const std::vector<std::int32_t>& labels) {
  const int classes = static_cast<int>(p.size() / labels.size());
  const auto op = ls::SparseCategoricalCrossentropy{from_logits}.op(ls::shape(classes));
  return testing::run_loss<Double>(op, labels.size(), p, labels, 1).sum;
}

}  // namespace

TEST_CASE("Sparse cross-entropy from logits is the logarithm of the softmax") {
  // softmax of (log 1, log 2, log 5) = (1/8, 2/8, 5/8)
  const std::vector<double> logits{0, std::log(2.0), std::log(5.0)};
  CHECK(std::abs(run_sum(true, logits, {0}) - std::log(8.0)) < 1e-14);
  CHECK(std::abs(run_sum(true, logits, {2}) - std::log(8.0 / 5)) < 1e-14);
}

TEST_CASE("Sparse cross-entropy is summed over examples") {
  const std::vector<double> logits{0, 0, std::log(3.0), 0};
  CHECK(std::abs(run_sum(true, logits, {0, 0}) - (std::log(2.0) + std::log(4.0 / 3))) < 1e-14);
}

TEST_CASE("Sparse cross-entropy of large logits does not overflow") {
  CHECK(run_sum(true, {1e4, -1e4}, {0}) == 0);
  CHECK(run_sum(true, {1e4, -1e4}, {1}) == 2e4);
}

TEST_CASE("Sparse cross-entropy from probabilities normalizes them again") {
  CHECK(std::abs(run_sum(false, {0.25, 0.75}, {1}) - std::log(4.0 / 3)) < 1e-14);
  CHECK(std::abs(run_sum(false, {0.5, 0.75}, {1}) - std::log(1.25 / 0.75)) < 1e-14);
}

TEST_CASE("Sparse cross-entropy clips probabilities, and has no gradient there") {
  const double low = 1e-7, high = 1 - 1e-7;
  CHECK(std::abs(run_sum(false, {0, 1}, {0}) - std::log((low + high) / low)) < 1e-12);
  const auto op = ls::SparseCategoricalCrossentropy{}.op(ls::shape(3));
  const auto g = testing::run_loss<Double>(op, 1, {0, 0.5, 1}, {0}, 1).gradient;
  CHECK(g[0] == 0);
  CHECK(std::abs(g[1] - 1 / (low + 0.5 + high)) < 1e-12);
  CHECK(g[2] == 0);
}

TEST_CASE("Sparse cross-entropy has one label for each vector along the last axis") {
  using Loss = ls::SparseCategoricalCrossentropy;
  STATIC_CHECK(Loss::accepts(ls::shape(10)));
  STATIC_CHECK(Loss::accepts(ls::shape(4, 4, 10)));
  STATIC_CHECK(!Loss::accepts(ls::shape()));
  STATIC_CHECK(Loss::target_shape(ls::shape(4, 5, 10)) == ls::shape(4, 5));
  STATIC_CHECK(Loss::target_shape(ls::shape(10)) == ls::shape());
  CHECK_FALSE(Loss{}.from_logits);
}
