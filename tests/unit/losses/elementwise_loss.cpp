#include "lockstep/losses/elementwise_loss.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "lockstep/losses/losses.hpp"
#include "lockstep/reference.hpp"
#include "support/exact_losses.hpp"
#include "support/run_loss.hpp"

namespace ls = lockstep;

namespace {

using Double = ls::Reference<double>;
constexpr double none = std::numeric_limits<double>::quiet_NaN();

template <class Loss>
testing::LossResult<double> run(const Loss& loss, const std::vector<double>& p,
                                const std::vector<double>& t) {
  return testing::run_loss<Double>(loss.op(ls::shape(static_cast<int>(p.size()))), 1, p, t, 1);
}

bool near(double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); }

}  // namespace

TEST_CASE("an element's loss is divided by the number of elements, for any shape") {
  const auto op = ls::MeanAbsoluteError{}.op(ls::shape(2, 2));
  const auto result =
      testing::run_loss<Double>(op, 2, {1, -2, 3, 4, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 8, 0, 0}, 0.5);
  CHECK(result.sum == 10.0 / 4 + 8.0 / 4);
  CHECK(result.gradient == std::vector<double>{0.125, -0.125, 0.125, 0.125, 0, -0.125, 0, 0});
}

TEST_CASE("Huber is quadratic up to delta and linear from there") {
  const auto result = run(ls::Huber{.delta = 2}, {1, 2, 5, -5}, {0, 0, 0, 0});
  CHECK(near(result.sum, (0.5 + 2 + 8 + 8) / 4));
  CHECK(result.gradient == std::vector<double>{0.25, 0.5, 0.5, -0.5});
}

TEST_CASE("log cosh of large differences does not overflow") {
  CHECK(near(run(ls::LogCosh{}, {1e4}, {0}).sum, 1e4 - std::log(2.0)));
  CHECK(run(ls::LogCosh{}, {-1e4}, {0}).gradient.at(0) == -1);
  CHECK(std::abs(run(ls::LogCosh{}, {3}, {3}).sum) < 1e-15);
}

TEST_CASE("losses and metrics are accurate from the smallest to the largest numbers") {
  testing::losses_are_exact<ls::Reference<float>>(1e-6);
  testing::losses_are_exact<Double>(1e-13);
  testing::rows_are_exact<ls::Reference<float>>(1e-6);
  testing::rows_are_exact<Double>(1e-13);
}

TEST_CASE("hinge treats the target 0 as -1, and is 0 beyond the margin") {
  const auto result = run(ls::Hinge{}, {0.5, 0.5, -3, 2}, {1, 0, 0, 1});
  CHECK(near(result.sum, (0.5 + 1.5 + 0 + 0) / 4));
  CHECK(result.gradient == std::vector<double>{-0.25, 0.25, 0, 0});
}

TEST_CASE("binary cross-entropy of large logits does not overflow") {
  const auto result = run(ls::BinaryCrossentropy{.from_logits = true}, {1e4, -1e4}, {0, 0});
  CHECK(near(result.sum, 1e4 / 2));
  CHECK(result.gradient == std::vector<double>{0.5, 0});
}

TEST_CASE("binary cross-entropy clips probabilities, and has no gradient there") {
  const auto result = run(ls::BinaryCrossentropy{}, {0, 1}, {1, 1});
  CHECK(near(result.sum, -(std::log(1e-7) + std::log(1 - 1e-7)) / 2));
  CHECK(result.gradient == std::vector<double>{0, 0});
}

TEST_CASE("label smoothing s replaces a binary target t with t (1 - s) + s / 2") {
  const double expected = run(ls::BinaryCrossentropy{}, {0.3, 0.6}, {0.9, 0.1}).sum;
  CHECK(
      near(run(ls::BinaryCrossentropy{.label_smoothing = 0.2}, {0.3, 0.6}, {1, 0}).sum, expected));
}

TEST_CASE("a NaN prediction makes the loss NaN") {
  CHECK(std::isnan(run(ls::MeanAbsoluteError{}, {none}, {1}).sum));
  CHECK(std::isnan(run(ls::Huber{}, {none}, {1}).sum));
  CHECK(std::isnan(run(ls::LogCosh{}, {none}, {1}).sum));
  CHECK(std::isnan(run(ls::Hinge{}, {none}, {1}).sum));
  CHECK(std::isnan(run(ls::Poisson{}, {none}, {1}).sum));
  CHECK(std::isnan(run(ls::BinaryCrossentropy{}, {none}, {1}).sum));
  CHECK(std::isnan(run(ls::BinaryCrossentropy{.from_logits = true}, {none}, {1}).sum));
  CHECK(std::isnan(run(ls::KLDivergence{}, {none, 1}, {1, 0}).sum));
  CHECK(std::isnan(run(ls::CosineSimilarity{}, {none, 1}, {1, 0}).sum));
  CHECK(std::isnan(run(ls::CategoricalCrossentropy{}, {none, 1}, {1, 0}).sum));
  CHECK(std::isnan(run(ls::CategoricalCrossentropy{.from_logits = true}, {none, 1}, {1, 0}).sum));
}

TEST_CASE("invalid options of losses are refused") {
  CHECK_NOTHROW(ls::Huber{}.check());
  CHECK_THROWS_AS(ls::Huber{.delta = 0}.check(), ls::UsageError);
  CHECK_THROWS_AS(ls::Huber{.delta = none}.check(), ls::UsageError);
  CHECK_NOTHROW(ls::BinaryCrossentropy{.label_smoothing = 1}.check());
  CHECK_THROWS_AS(ls::BinaryCrossentropy{.label_smoothing = -0.1}.check(), ls::UsageError);
  CHECK_THROWS_AS(ls::CategoricalCrossentropy{.label_smoothing = 1.1}.check(), ls::UsageError);
  CHECK_THROWS_AS(ls::CategoricalCrossentropy{.label_smoothing = none}.check(), ls::UsageError);
}
