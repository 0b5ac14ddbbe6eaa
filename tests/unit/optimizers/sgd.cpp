#include "lockstep/optimizers/sgd.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "lockstep/reference.hpp"
#include "support/run_optimizer.hpp"

namespace ls = lockstep;
using Double = ls::Reference<double>;

TEST_CASE("SGD subtracts the gradient times the rate") {
  testing::OptimizerRun<Double, ls::SGD> run({.learning_rate = 0.5}, {1, 2, 3});
  run.apply({2, -4, 0});
  CHECK(run.weights() == std::vector<double>{0, 4, 3});
}

TEST_CASE("SGD's momentum accumulates rate times gradient") {
  testing::OptimizerRun<Double, ls::SGD> run({.learning_rate = 0.5, .momentum = 0.5}, {1});
  run.apply({1});  // v = -0.5
  CHECK(run.weights() == std::vector<double>{0.5});
  run.apply({1});  // v = -0.25 - 0.5
  CHECK(run.slot(0) == std::vector<double>{-0.75});
  CHECK(run.weights() == std::vector<double>{-0.25});
}

TEST_CASE("SGD with Nesterov momentum applies the momentum one step ahead") {
  testing::OptimizerRun<Double, ls::SGD> run(
      {.learning_rate = 0.5, .momentum = 0.5, .nesterov = true}, {1});
  run.apply({1});  // v = -0.5; w += 0.5 v - 0.5
  CHECK(run.weights() == std::vector<double>{0.25});
}

TEST_CASE("SGD follows its schedule step by step") {
  testing::OptimizerRun<Double, ls::SGD> run(
      {.learning_rate = [](std::uint64_t step) { return step == 0 ? 1.0 : 0.25; }}, {4});
  run.apply({1});
  CHECK(run.weights() == std::vector<double>{3});
  run.apply({1});
  CHECK(run.weights() == std::vector<double>{2.75});
}

TEST_CASE("A penalty's gradient enters the update and stays in the gradient") {
  testing::OptimizerRun<Double, ls::SGD> run({.learning_rate = 0.5}, {2, -4, 0});
  run.apply({1, 1, 1}, ls::Penalty{0.5, 0.25});  // l1 sign(w) + 2 l2 w
  CHECK(run.gradient() == std::vector<double>{1 + 0.5 + 1, 1 - 0.5 - 2, 1});
  CHECK(run.weights() == std::vector<double>{2 - 1.25, -4 + 0.75, -0.5});
}

TEST_CASE("SGD refuses a momentum outside 0 to 1, and Nesterov without momentum") {
  CHECK_NOTHROW(ls::SGD{.momentum = 0.9, .nesterov = true}.check());
  CHECK_NOTHROW(ls::SGD{}.check());
  CHECK_THROWS_AS(ls::SGD{.momentum = 1}.check(), ls::UsageError);
  CHECK_THROWS_AS(ls::SGD{.momentum = -0.1}.check(), ls::UsageError);
  CHECK_THROWS_AS(ls::SGD{.momentum = std::nan("")}.check(), ls::UsageError);
  CHECK_THROWS_AS(ls::SGD{.nesterov = true}.check(), ls::UsageError);
}

TEST_CASE("SGD has a slot only with momentum") {
  CHECK(ls::SGD{}.slot_count() == 0);
  CHECK(ls::SGD{.momentum = 0.9}.slot_count() == 1);
  CHECK(ls::SGD::slot_name(0) == "momentum");
}

namespace {
struct TwoSlots {
  std::size_t slot_count() const { return 2; }
  template <class T>
  auto rule() const {
    return [](T& w, T g) { w -= g; };
  }
};
}  // namespace

TEST_CASE("An optimizer whose rule has no overload for its slots is refused") {
  auto context = Double{}.open(1, 0);
  double w = 1, g = 1;
  const ls::UpdateIo<Double> io{context, 1, &w, &g, {}, {}};
  CHECK_THROWS_AS((ls::Kernel<TwoSlots, Double>::update({}, io)), ls::UsageError);
}
