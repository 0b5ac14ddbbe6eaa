#include "lockstep/optimizers/adam.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "lockstep/reference.hpp"
#include "support/run_optimizer.hpp"

namespace ls = lockstep;
using Double = ls::Reference<double>;

TEST_CASE("Adam's first step has the size of the rate, whatever the gradient's") {
  testing::OptimizerRun<Double, ls::Adam> run({.learning_rate = 0.5}, {1, 1, 1});
  run.apply({1e-2, -100, 0});
  const auto w = run.weights();
  CHECK(std::abs(w[0] - 0.5) < 1e-3);
  CHECK(std::abs(w[1] - 1.5) < 1e-6);
  CHECK(w[2] == 1);
}

TEST_CASE("Adam adds epsilon to the uncorrected root") {
  // one step: m = 0.1 g, v = 0.001 g^2, rate * sqrt(0.001) / 0.1 * m / (sqrt(v) + epsilon), g = 1
  testing::OptimizerRun<Double, ls::Adam> run({.learning_rate = 1, .epsilon = 0.1}, {0});
  run.apply({1});
  const double root = std::sqrt(0.001);
  CHECK(std::abs(run.weights()[0] + root / (root + 0.1)) < 1e-12);
}

TEST_CASE("Adam keeps running means of the gradient and of its square") {
  testing::OptimizerRun<Double, ls::Adam> run({.beta_1 = 0.5, .beta_2 = 0.75}, {0});
  run.apply({2});
  run.apply({4});
  CHECK(run.slot(0) == std::vector<double>{2.5});   // 1, then (1 + 4) / 2
  CHECK(run.slot(1) == std::vector<double>{4.75});  // 1, then 0.75 + 4
}

TEST_CASE("Adam with amsgrad keeps the largest second moment") {
  testing::OptimizerRun<Double, ls::Adam> run({.beta_2 = 0.5, .amsgrad = true}, {0});
  run.apply({2});
  run.apply({0});
  CHECK(run.slot(1) == std::vector<double>{1});
  CHECK(run.slot(2) == std::vector<double>{2});
}

TEST_CASE("Adam refuses betas outside 0 to 1 and an epsilon that is not positive") {
  CHECK_NOTHROW(ls::Adam{}.check());
  CHECK_THROWS_AS(ls::Adam{.beta_1 = 1}.check(), ls::UsageError);
  CHECK_THROWS_AS(ls::Adam{.beta_2 = -0.5}.check(), ls::UsageError);
  CHECK_THROWS_AS(ls::Adam{.epsilon = 0}.check(), ls::UsageError);
  CHECK_THROWS_AS(ls::Adam{.epsilon = std::nan("")}.check(), ls::UsageError);
}

TEST_CASE("Adam names its slots as Keras does") {
  CHECK(ls::Adam{}.slot_count() == 2);
  CHECK(ls::Adam{.amsgrad = true}.slot_count() == 3);
  CHECK(ls::Adam::slot_name(0) == "momentum");
  CHECK(ls::Adam::slot_name(1) == "velocity");
  CHECK(ls::Adam::slot_name(2) == "velocity_hat");
}
