/// Callbacks in a real training run.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <vector>

#include "unit/training/model_support.hpp"

namespace {

namespace ls = lockstep;
using Catch::Matchers::WithinRel;

/// One step of gradient descent per epoch, with rate rates[e] in epoch e.
line::ByHand by_hand(const std::vector<double>& rates) {
  line::ByHand line;
  for (const double rate : rates) line.step(0, 10, rate);
  return line;
}
auto model_of_line(double rate = 0.1) {
  ls::Model model{line::Net{}, line::Double{}, ls::MeanSquaredError{},
                  ls::SGD{.learning_rate = rate}};
  const line::ByHand start;
  model.set_weights("dense/kernel", std::vector{start.w});
  model.set_weights("dense/bias", std::vector{start.b});
  return model;
}
template <class Model>
void check_is(const Model& model, const line::ByHand& line) {
  CHECK_THAT(model.weights("dense/kernel")[0], WithinRel(line.w, 1e-12));
  CHECK_THAT(model.weights("dense/bias")[0], WithinRel(line.b, 1e-12));
}

}  // namespace

TEST_CASE("fit trains with the rates of a LearningRateScheduler, and keeps them in its history") {
  const std::vector<double> rates{0.1, 0.1, 0.02, 0.004};
  auto model = model_of_line(7);
  const auto history = model.fit(line::points() | ls::batch(10),
                                 {.epochs = 4,
                                  .callbacks = {ls::LearningRateScheduler{[&](int epoch, double) {
                                    return rates[static_cast<std::size_t>(epoch)];
                                  }}},
                                  .progress = ls::ProgressStyle::none});
  check_is(model, by_hand(rates));
  CHECK(history["learning_rate"] == rates);
  CHECK(model.learning_rate() == rates.back());
}

TEST_CASE("fit stops when EarlyStopping requests it, with the weights of the best epoch") {
  // From the third epoch on, the rate is so large that the loss diverges.
  const std::vector<double> rates{0.1, 0.1, 5, 5, 5, 5, 5, 5};
  for (const bool restores : {false, true}) {
    auto model = model_of_line();
    const auto history = model.fit(
        line::points() | ls::batch(10), line::points() | ls::batch(10),
        {.epochs = 8,
         .callbacks = {ls::LearningRateScheduler{[&](int epoch, double) {
                         return rates[static_cast<std::size_t>(epoch)];
                       }},
                       ls::EarlyStopping{.patience = 2, .restore_best_weights = restores}},
         .progress = ls::ProgressStyle::none});
    REQUIRE(history["val_loss"].size() == 4);  // two good epochs, two bad ones
    const std::size_t kept = restores ? 2 : 4;
    check_is(model, by_hand({rates.begin(), rates.begin() + static_cast<std::ptrdiff_t>(kept)}));
  }
}

TEST_CASE("ReduceLROnPlateau lowers the rate of the epochs that follow") {
  auto model = model_of_line(0.1);
  const auto history =
      model.fit(line::points() | ls::batch(10),
                {.epochs = 5,
                 .callbacks = {ls::ReduceLROnPlateau{
                     .monitor = "loss", .factor = 0.5, .patience = 2, .min_delta = 1000}},
                 .progress = ls::ProgressStyle::none});
  const std::vector<double> rates{0.1, 0.1, 0.1, 0.05, 0.05};  // no loss falls by 1000
  CHECK(history["learning_rate"] == rates);
  check_is(model, by_hand(rates));
}

TEST_CASE(
    "a callback may log values while it iterates over the logs, and later callbacks see them") {
  struct Doubles : ls::Callback {
    void on_epoch_end(int, const ls::Logs& logs) override {
      for (const auto& [name, value] : logs) control().log("twice_" + name, 2 * value);
      CHECK_FALSE(logs.contains("twice_loss"));
    }
  };
  auto model = model_of_line();
  const auto history = model.fit(line::points() | ls::batch(10), line::points() | ls::batch(10),
                                 {.epochs = 2,
                                  .callbacks = {std::make_shared<Doubles>()},
                                  .progress = ls::ProgressStyle::none});
  for (const char* const name : {"loss", "val_loss"}) {
    REQUIRE(history[std::string("twice_") + name].size() == 2);
    CHECK(history[std::string("twice_") + name][1] == 2 * history[name][1]);
  }
}

TEST_CASE("log is allowed in on_epoch_end only, and a weights copy fits one model only") {
  struct Misuse : ls::Callback {
    void on_epoch_begin(int, const ls::Logs&) override { control().log("early", 1); }
  };
  struct Foreign : ls::Callback {
    void on_train_end(const ls::Logs&) override {
      control().set_weights(std::vector<std::byte>(3));
    }
  };
  auto model = model_of_line();
  const auto fit = [&](std::shared_ptr<ls::Callback> callback) {
    model.fit(line::points() | ls::batch(10),
              {.callbacks = {callback}, .progress = ls::ProgressStyle::none});
  };
  CHECK_THROWS_AS(fit(std::make_shared<Misuse>()), ls::UsageError);
  CHECK_THROWS_AS(fit(std::make_shared<Foreign>()), ls::UsageError);
}
