#include "lockstep/training/callbacks/reduce_lr_on_plateau.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "callbacks_recorded.hpp"
#include "fake_loop.hpp"
#include "support/log_lines.hpp"

using namespace callbacks_test;

TEST_CASE("ReduceLROnPlateau gives each epoch the rate that Keras gives it") {
  const testing::LogLines lines;
  const auto all = recorded::reducing();
  REQUIRE(all.size() > 100);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const recorded::Reducing& r = all[i];
    CAPTURE(i);
    FakeLoop loop, interrupted;
    std::vector<ls::Logs> epochs;
    for (const double value : r.values)
      epochs.push_back(value == recorded::absent ? logs_of({{"loss", 1}})
                                                 : logs_of({{"loss", 1}, {"val_loss", value}}));
    const auto rates = loop.run(r.options, epochs);
    REQUIRE(rates.size() == r.rates.size());
    for (std::size_t e = 0; e < rates.size(); ++e) {
      CAPTURE(e);
      CHECK_THAT(rates[e], Catch::Matchers::WithinRel(r.rates[e], 1e-12));
    }
    CHECK(loop.logs["learning_rate"] == rates.back());  // the rate of this epoch, not of the next
    const auto make = [&] { return std::shared_ptr<ls::Callback>(r.options); };
    CHECK(interrupted.run_interrupted(make, epochs) == rates);
  }
}

TEST_CASE("NaN is never ReduceLROnPlateau's best value") {
  const auto rates = [](const std::vector<double>& values) {
    std::vector<ls::Logs> epochs;
    for (const double value : values) epochs.push_back(logs_of({{"val_loss", value}}));
    return FakeLoop().run(ls::ReduceLROnPlateau{.factor = 0.5, .patience = 2}, epochs);
  };
  const double nan = recorded::nan;
  // Keras 3.15 halves the rate every second epoch.
  CHECK(rates({nan, 9, 8, 7, 6, 5}) == std::vector<double>(6, 0.1));
  CHECK(rates({9, 8, nan, 7, nan, 6}) == std::vector<double>(6, 0.1));
  CHECK(rates({9, nan, nan, 8}) == std::vector<double>{0.1, 0.1, 0.1, 0.05});
}

TEST_CASE("ReduceLROnPlateau rejects invalid options") {
  const auto make = [](const ls::ReduceLROnPlateau& options) {
    return std::shared_ptr<ls::Callback>(options);
  };
  CHECK_THROWS_AS(make({.factor = 1}), ls::UsageError);
  CHECK_THROWS_AS(make({.factor = -0.5}), ls::UsageError);
  CHECK_THROWS_AS(make({.factor = recorded::nan}), ls::UsageError);
  CHECK_THROWS_AS(make({.patience = -1}), ls::UsageError);
  CHECK_THROWS_AS(make({.cooldown = -1}), ls::UsageError);
  CHECK_THROWS_AS(make({.min_lr = -1}), ls::UsageError);
  CHECK_THROWS_AS(FakeLoop().run(make({.monitor = "speed"}), {logs_of({{"loss", 1}})}),
                  ls::UsageError);
}
