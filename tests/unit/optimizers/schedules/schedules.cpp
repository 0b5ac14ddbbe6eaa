#include "lockstep/optimizers/schedules/schedules.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "lockstep/optimizers/schedule.hpp"

namespace ls = lockstep;

namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

bool near(double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); }

template <class S>
bool refused(const S& schedule) {
  try {
    const ls::Schedule made = schedule;
  } catch (const ls::UsageError& error) {
    return std::string(error.what()).find(schedule.name) == 0;
  }
  return false;
}

}  // namespace

TEST_CASE("an exponential decay multiplies by decay_rate every decay_steps steps") {
  const ls::ExponentialDecay s{0.5, 10, 0.25};
  CHECK(s(0) == 0.5);
  CHECK(near(s(10), 0.125));
  CHECK(near(s(5), 0.25));
  const ls::ExponentialDecay stairs{0.5, 10, 0.25, true};
  CHECK(stairs(9) == 0.5);
  CHECK(near(stairs(19), 0.125));
}

TEST_CASE("an inverse time decay divides by a number that grows with the step") {
  const ls::InverseTimeDecay s{1, 10, 0.5};
  CHECK(near(s(20), 0.5));
  CHECK(near(s(5), 0.8));
  CHECK(ls::InverseTimeDecay{1, 10, 0.5, true}(9) == 1);
}

TEST_CASE("a polynomial decay stays at its end rate, or cycles") {
  const ls::PolynomialDecay s{1, 10, 0.2};
  CHECK(s(0) == 1);
  CHECK(near(s(5), 0.6));
  CHECK(near(s(10), 0.2));
  CHECK(near(s(1000), 0.2));
  const ls::PolynomialDecay cycle{1, 10, 0.2, 1, true};
  CHECK(near(cycle(10), 0.2));
  CHECK(near(cycle(15), 0.2 + 0.8 * 5 / 20));  // the second period is 20 steps long
  CHECK(near(ls::PolynomialDecay{1, 10, 0, 2}(5), 0.25));
}

TEST_CASE("a piecewise constant rate changes after its boundaries") {
  const ls::PiecewiseConstantDecay s{{2, 5}, {3, 2, 1}};
  std::vector<double> rates;
  for (std::uint64_t step = 0; step < 8; ++step) rates.push_back(s(step));
  CHECK(rates == std::vector<double>{3, 3, 3, 2, 2, 2, 1, 1});
  CHECK(ls::PiecewiseConstantDecay{{}, {4}}(100) == 4);
}

TEST_CASE("a cosine decay falls slowly, fast, slowly, and then stays constant") {
  const ls::CosineDecay s{2, 8, 0.5};
  CHECK(s(0) == 2);
  CHECK(near(s(4), 1.5));
  CHECK(near(s(8), 1));
  CHECK(near(s(9), 1));
}

TEST_CASE("a warmup rises linearly to the start of the cosine") {
  const ls::CosineDecay s{
      .initial_learning_rate = 1, .decay_steps = 8, .warmup_target = 3, .warmup_steps = 4};
  CHECK(s(0) == 1);
  CHECK(near(s(1), 1.5));
  CHECK(near(s(3), 2.5));
  CHECK(near(s(4), 3));
  CHECK(near(s(8), 1.5));
  CHECK(std::abs(s(12)) < 1e-15);
}

TEST_CASE("cosine decays restart, longer and lower each time") {
  const ls::CosineDecayRestarts s{
      .initial_learning_rate = 1, .first_decay_steps = 4, .t_mul = 3, .m_mul = 0.5};
  CHECK(s(0) == 1);
  CHECK(near(s(2), 0.5));
  CHECK(near(s(4), 0.5));    // the second one, 12 steps
  CHECK(near(s(10), 0.25));  // its middle
  CHECK(near(s(16), 0.25));  // the third
  const ls::CosineDecayRestarts equal{
      .initial_learning_rate = 1, .first_decay_steps = 4, .t_mul = 1};
  CHECK(equal(12) == 1);
  CHECK(near(equal(14), 0.5));
}

TEST_CASE("all cosine decays end at the same rate") {
  const ls::CosineDecayRestarts s{.initial_learning_rate = 2,
                                  .first_decay_steps = 1000,
                                  .t_mul = 1,
                                  .m_mul = 0.5,
                                  .alpha = 0.25};
  CHECK(std::abs(s(999) - 0.5) < 1e-5);
  CHECK(near(s(1000), 0.5 + 0.75));
  CHECK(std::abs(s(1999) - 0.5) < 1e-5);
}

TEST_CASE("each restart begins at its exact step, whatever the logarithms round to") {
  for (const double t : {2.0, 3.0, 5.0, 7.0, 10.0}) {
    const ls::CosineDecayRestarts s{.initial_learning_rate = 1, .first_decay_steps = 1, .t_mul = t};
    double begin = 0;
    for (int i = 0; i < 12; ++i) {
      CAPTURE(t, i);
      CHECK(s(static_cast<std::uint64_t>(begin)) == 1);
      begin += std::pow(t, i);
    }
  }
}

TEST_CASE("a schedule with invalid parameters is refused by name") {
  CHECK(refused(ls::ExponentialDecay{}));
  CHECK(refused(ls::ExponentialDecay{0.1, 10}));
  CHECK(refused(ls::ExponentialDecay{-0.1, 10, 0.5}));
  CHECK(refused(ls::ExponentialDecay{none, 10, 0.5}));
  CHECK(refused(ls::InverseTimeDecay{0.1, 0, 0.5}));
  CHECK(refused(ls::InverseTimeDecay{0.1, 10}));
  CHECK(refused(ls::PolynomialDecay{0.1}));
  CHECK(refused(ls::PolynomialDecay{0.1, 10, -1}));
  CHECK(refused(ls::PolynomialDecay{0.1, 10, 0.1, 0}));
  CHECK(refused(ls::PiecewiseConstantDecay{}));
  CHECK(refused(ls::PiecewiseConstantDecay{{1}, {0.1}}));
  CHECK(refused(ls::PiecewiseConstantDecay{{2, 2}, {0.1, 0.2, 0.3}}));
  CHECK(refused(ls::PiecewiseConstantDecay{{2}, {0.1, -0.2}}));
  CHECK(refused(ls::CosineDecay{0.1}));
  CHECK(refused(ls::CosineDecay{0.1, 10, -1}));
  CHECK(
      refused(ls::CosineDecay{.initial_learning_rate = 0.1, .decay_steps = 10, .warmup_steps = 5}));
  CHECK(refused(ls::CosineDecayRestarts{0.1}));
  CHECK(refused(ls::CosineDecayRestarts{0.1, 10, 0.5}));
  CHECK_FALSE(refused(ls::CosineDecayRestarts{0.1, 10}));
  const auto minus = static_cast<std::uint64_t>(-1);  // what -1 becomes by conversion
  CHECK(refused(ls::ExponentialDecay{0.1, minus, 0.5}));
  CHECK(refused(ls::InverseTimeDecay{0.1, minus, 0.5}));
  CHECK(refused(ls::PolynomialDecay{0.1, minus}));
  CHECK(refused(ls::PiecewiseConstantDecay{{minus}, {0.1, 0.2}}));
  CHECK(refused(ls::CosineDecay{0.1, minus}));
  CHECK(refused(ls::CosineDecay{0.1, 10, 0, 0.1, minus}));
  CHECK(refused(ls::CosineDecayRestarts{0.1, minus}));
}

TEST_CASE("the description of a schedule has its parameters, that of a function does not") {
  using S = ls::Schedule;
  CHECK(S(0.1).description().empty());
  CHECK(S([](std::uint64_t) { return 0.1; }).description() == "a function");
  CHECK(S(ls::PiecewiseConstantDecay{{7}, {0.1, 0.01}}).description() ==
        "piecewise_constant_decay, boundary 7, value 0.1, value 0.01");
  const std::set<std::string> all{S(ls::ExponentialDecay{0.1, 10, 0.5}).description(),
                                  S(ls::ExponentialDecay{0.1, 10, 0.5, true}).description(),
                                  S(ls::ExponentialDecay{0.1, 10, 0.6}).description(),
                                  S(ls::InverseTimeDecay{0.1, 10, 0.5}).description(),
                                  S(ls::PolynomialDecay{0.1, 10}).description(),
                                  S(ls::PolynomialDecay{0.1, 10, 0.0001, 2}).description(),
                                  S(ls::CosineDecay{0.1, 10}).description(),
                                  S(ls::CosineDecay{0.1, 10, 0, 0.1}).description(),
                                  S(ls::CosineDecay{0.1, 10, 0, 0.1, 3}).description(),
                                  S(ls::CosineDecayRestarts{0.1, 10}).description(),
                                  S(ls::CosineDecayRestarts{0.1, 10, 3}).description()};
  CHECK(all.size() == 11);
}

TEST_CASE("a warm-up rises to the first rate of any schedule, which then begins") {
  const ls::CosineDecay decay{.initial_learning_rate = 0.4, .decay_steps = 20, .alpha = 0.1};
  const ls::Schedule s = ls::Warmup{.steps = 10, .from = 0.1, .then = decay};
  const ls::Schedule own = ls::CosineDecay{.initial_learning_rate = 0.1,
                                           .decay_steps = 20,
                                           .alpha = 0.1,
                                           .warmup_target = 0.4,
                                           .warmup_steps = 10};
  for (const std::uint64_t step : {0u, 3u, 9u, 10u, 11u, 25u, 40u}) CHECK(near(s(step), own(step)));
  const ls::Schedule constant = ls::Warmup{.steps = 4, .then = 0.2};
  CHECK(constant(0) == 0);
  CHECK(near(constant(1), 0.05));
  CHECK(constant(4) == 0.2);
  CHECK(constant.description() == "warmup, steps 4, from 0, then 0.2");
  CHECK(s.description() ==
        "warmup, steps 10, from 0.1, then 0.4 by cosine_decay, initial_learning_rate 0.4, "
        "decay_steps 20, alpha 0.1, warmup_target -1, warmup_steps 0");
  CHECK(refused(ls::Warmup{.then = 0.1}));
  CHECK(refused(ls::Warmup{.steps = 4, .from = -1, .then = 0.1}));
}
