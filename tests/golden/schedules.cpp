/// \file
/// Compares learning-rate schedules with Keras, which computes them in float32.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <string>

#include "golden/golden_file.hpp"
#include "lockstep/optimizers/schedule.hpp"
#include "lockstep/optimizers/schedules/schedules.hpp"

namespace ls = lockstep;

TEST_CASE("Schedules have Keras' learning rates", "[golden]") {
  const golden::GoldenFile file("schedules");
  const auto steps = file.values("step");
  REQUIRE(steps.size() == 14);
  const auto meets = [&](const std::string& name, const ls::Schedule& schedule) {
    const auto expected = file.values(name);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      CAPTURE(name, steps[i]);
      const double rate = schedule(static_cast<std::uint64_t>(steps[i]));
      CHECK(std::abs(rate - expected.at(i)) <= 1e-6 * std::abs(expected[i]));
    }
  };
  meets("piecewise",
        ls::PiecewiseConstantDecay{.boundaries = {10, 100}, .values = {0.1, 0.01, 0.001}});
  meets("exponential", ls::ExponentialDecay{0.1, 100, 0.96});
  meets("exponential_staircase", ls::ExponentialDecay{0.1, 100, 0.5, true});
  meets("polynomial", ls::PolynomialDecay{0.1, 100, 0.001, 2});
  meets("polynomial_cycle", ls::PolynomialDecay{0.1, 100, 0.001, 1, true});
  meets("inverse_time", ls::InverseTimeDecay{0.1, 10, 0.5});
  meets("cosine", ls::CosineDecay{0.1, 100, 0.1});
  meets("cosine_warmup", ls::CosineDecay{.initial_learning_rate = 0,
                                         .decay_steps = 100,
                                         .alpha = 0.1,
                                         .warmup_target = 0.2,
                                         .warmup_steps = 10});
  meets("cosine_restarts", ls::CosineDecayRestarts{0.1, 50, 2, 0.9, 0.05});
}
