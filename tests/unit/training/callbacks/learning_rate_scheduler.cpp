#include "lockstep/training/callbacks/learning_rate_scheduler.hpp"

#include <catch2/catch_test_macros.hpp>

#include "fake_loop.hpp"

using namespace callbacks_test;

TEST_CASE(
    "LearningRateScheduler sets the rate before each epoch from the epoch and the current rate") {
  std::vector<std::pair<int, double>> asked;
  FakeLoop loop;
  const std::vector<ls::Logs> epochs(4, logs_of({{"loss", 1}}));
  const auto rates = loop.run(ls::LearningRateScheduler{[&](int epoch, double rate) {
                                asked.emplace_back(epoch, rate);
                                return epoch < 2 ? rate : rate / 2;
                              }},
                              epochs);
  CHECK(rates == std::vector<double>{0.1, 0.1, 0.05, 0.025});
  CHECK(asked == std::vector<std::pair<int, double>>{{0, 0.1}, {1, 0.1}, {2, 0.1}, {3, 0.05}});
  CHECK(loop.logs["learning_rate"] == 0.025);
}

TEST_CASE("LearningRateScheduler needs a function") {
  CHECK_THROWS_AS(std::shared_ptr<ls::Callback>(ls::LearningRateScheduler{}), ls::UsageError);
}
