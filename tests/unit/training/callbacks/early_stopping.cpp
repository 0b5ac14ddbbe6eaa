#include "lockstep/training/callbacks/early_stopping.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/training/callbacks/model_checkpoint.hpp"
#include "lockstep/training/callbacks/reduce_lr_on_plateau.hpp"
#include "lockstep/training/checkpoint/checkpoint_options.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "callbacks_recorded.hpp"
#include "fake_loop.hpp"
#include "support/log_lines.hpp"

namespace {

using namespace callbacks_test;
using Catch::Matchers::ContainsSubstring;

std::vector<ls::Logs> epochs_of(const std::vector<double>& values) {
  std::vector<ls::Logs> epochs;
  for (const double value : values)
    epochs.push_back(value == recorded::absent ? logs_of({{"loss", 1}})
                                               : logs_of({{"loss", 1}, {"val_loss", value}}));
  return epochs;
}

/// Keras 3.15 takes a first value that is NaN for the best one, so that the next one is the first of
/// `patience`: a difference.
int epochs_of(const recorded::Stopping& r) {
  const double first = r.values.at(static_cast<std::size_t>(r.options.start_from_epoch));
  return r.epochs - (std::isnan(first) ? 1 : 0);
}
int weights_of(const recorded::Stopping& r) {
  return std::min(r.weights_of_epoch, epochs_of(r) - 1);
}

}  // namespace

TEST_CASE("EarlyStopping stops and restores where Keras does") {
  const auto all = recorded::stopping();
  REQUIRE(all.size() > 100);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const recorded::Stopping& r = all[i];
    for (const bool is_automatic : {false, true}) {
      ls::EarlyStopping options = r.options;
      if (is_automatic && options.mode == ls::MonitorMode::min)
        options.mode = ls::MonitorMode::automatic;
      CAPTURE(i, is_automatic);
      FakeLoop loop;
      const auto rates = loop.run(options, epochs_of(r.values));
      CHECK(rates.size() == static_cast<std::size_t>(epochs_of(r)));
      CHECK(loop.epoch == weights_of(r));
    }
  }
}

TEST_CASE("EarlyStopping makes Keras' decisions if the run is interrupted after each epoch") {
  const testing::LogLines lines;
  const auto all = recorded::stopping();
  REQUIRE(all.size() > 100);
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    FakeLoop loop;
    const auto make = [&] { return std::shared_ptr<ls::Callback>(all[i].options); };
    const auto rates = loop.run_interrupted(make, epochs_of(all[i].values));
    CHECK(rates.size() == static_cast<std::size_t>(epochs_of(all[i])));
    CHECK(loop.epoch == weights_of(all[i]));
  }
}

TEST_CASE("NaN is never EarlyStopping's best value, at the beginning or later") {
  const testing::LogLines lines;
  const double nan = recorded::nan;
  const auto stops_after = [&](const std::vector<double>& values, ls::MonitorMode mode) {
    FakeLoop loop;
    const ls::EarlyStopping options{.patience = 3, .mode = mode, .restore_best_weights = true};
    const std::size_t epochs = loop.run(options, epochs_of(values)).size();
    FakeLoop interrupted;
    const auto make = [&] { return std::shared_ptr<ls::Callback>(options); };
    CHECK(interrupted.run_interrupted(make, epochs_of(values)).size() == epochs);
    CHECK(interrupted.epoch == loop.epoch);
    return std::pair(epochs, loop.epoch);  // and the epoch of the weights
  };
  using Stop = std::pair<std::size_t, int>;
  constexpr auto min = ls::MonitorMode::min, max = ls::MonitorMode::max;
  // Keras 3.15: after 4 epochs, with the weights of the first.
  CHECK(stops_after({nan, 9, 8, 7, 6, 5, 4, 3, 2, 1}, min) == Stop{10, 9});
  CHECK(stops_after({nan, 1, 2, 3, 4, 5, 6}, max) == Stop{7, 6});
  CHECK(stops_after({nan, nan, 9, 10, 11, 12, 1}, min) == Stop{6, 2});
  CHECK(stops_after({9, nan, 8, nan, nan, nan, 1}, min) == Stop{6, 2});
  CHECK(lines.lines.empty());
  CHECK(stops_after({nan, nan, nan, nan, nan}, min) == Stop{3, 2});  // no best one
  REQUIRE(lines.lines.size() == 2);
  CHECK_THAT(lines.lines[0], ContainsSubstring("'val_loss' was NaN in each epoch"));
  FakeLoop loop;  // a baseline that is NaN is none
  CHECK(
      loop.run(ls::EarlyStopping{.patience = 2, .baseline = nan}, epochs_of({3, 2, 1, 0})).size() ==
      4);
}

TEST_CASE("EarlyStopping starts over with each fit") {
  const std::shared_ptr<ls::Callback> callback = ls::EarlyStopping{.patience = 2};
  for (int i = 0; i < 2; ++i) {
    FakeLoop loop;
    CHECK(loop.run(callback, epochs_of({1, 2, 2, 2, 2, 2})).size() == 3);
  }
}

TEST_CASE("the automatic mode recognizes by name values that should rise") {
  for (const char* const name : {"accuracy", "val_accuracy", "val_auc_1", "precision", "recall",
                                 "top_k_categorical_accuracy", "cosine_similarity"}) {
    CAPTURE(name);
    FakeLoop loop;
    std::vector<ls::Logs> epochs;
    for (const double value : {0.1, 0.2, 0.3, 0.2, 0.2}) epochs.push_back(logs_of({{name, value}}));
    loop.callbacks_log = true;
    CHECK(loop.run(ls::EarlyStopping{.monitor = name}, epochs).size() == 4);
  }
}

TEST_CASE("the mode may be Keras' word") {
  const auto epochs_with = [](const ls::MonitorModeOption& mode) {
    FakeLoop loop;
    return loop.run(ls::EarlyStopping{.patience = 1, .mode = mode}, epochs_of({1, 2, 3, 2, 1}))
        .size();
  };
  CHECK(epochs_with("min") == epochs_with(ls::MonitorMode::min));
  CHECK(epochs_with(std::string("max")) == epochs_with(ls::MonitorMode::max));
  CHECK(epochs_with("auto") == epochs_with(ls::MonitorMode::automatic));
  CHECK(epochs_with("min") == 2);
  CHECK(epochs_with("max") == 4);
  // The same for the other options of this name.
  CHECK(ls::ReduceLROnPlateau{.mode = "max"}.mode == ls::MonitorMode::max);
  CHECK(ls::ModelCheckpoint{.filepath = "w", .mode = "max"}.mode == ls::MonitorMode::max);
  CHECK(ls::CheckpointOptions{.best = "score", .mode = "max"}.mode == ls::MonitorMode::max);
}

TEST_CASE("EarlyStopping warns once, listing the logged names, if its value is missing") {
  std::vector<std::string> messages;
  const auto before =
      ls::set_log([&](ls::LogLevel, std::string_view text) { messages.emplace_back(text); });
  FakeLoop().run(ls::EarlyStopping{}, epochs_of({recorded::absent, recorded::absent}));
  FakeLoop logs;
  logs.callbacks_log = true;
  logs.run(ls::EarlyStopping{.monitor = "val_accuracy"}, epochs_of({1, 2}));
  // Before the first epoch, where fit knows it.
  FakeLoop none;
  none.numbers.has_validation = false;
  none.run(ls::EarlyStopping{}, {});
  none.run(ls::EarlyStopping{.monitor = "val_accuracy"}, {});
  none.numbers.rank = 1;
  none.run(ls::EarlyStopping{}, {});
  ls::set_log(before);
  REQUIRE(messages.size() == 4);
  CHECK(messages[2] ==
        "EarlyStopping: no epoch will log a value named 'val_loss'; pass validation "
        "data to fit, or set .monitor to one of loss");
  CHECK_THAT(messages[3], ContainsSubstring("no epoch will log a value named 'val_accuracy'"));
  CHECK_THAT(messages[1],
             ContainsSubstring("'val_accuracy'") &&
                 ContainsSubstring("only loss, val_loss; set .monitor to one of them"));
  CHECK_THAT(messages[0], ContainsSubstring("'val_loss'") && ContainsSubstring("only loss") &&
                              ContainsSubstring("validation data"));
}

TEST_CASE("EarlyStopping rejects invalid options") {
  const auto make = [](const ls::EarlyStopping& options) {
    return std::shared_ptr<ls::Callback>(options);
  };
  const auto begin = [&](const ls::EarlyStopping& options) {
    FakeLoop loop;
    loop.numbers.metrics = {"loss", "speed"};
    loop.run(options, epochs_of({1}));
  };
  CHECK_THROWS_WITH(begin({.monitor = "val_speed"}),
                    "EarlyStopping: whether 'val_speed' should fall or rise is unknown; set .mode "
                    "to MonitorMode::min or max");
  CHECK_THROWS_WITH(begin({.monitor = "val_mae"}),
                    "EarlyStopping: fit logs no value named 'val_mae', only loss, speed and, "
                    "with validation data, val_loss, val_speed; set .monitor to one of them, or "
                    ".mode if another callback logs 'val_mae'");
  CHECK_NOTHROW(begin({.monitor = "val_mae", .mode = ls::MonitorMode::min}));
  CHECK_NOTHROW(begin({.monitor = "val_mae", .mode = "min"}));
  CHECK_THROWS_WITH(begin({.monitor = "val_mae", .mode = "maximum"}),
                    "mode is \"maximum\"; it must be MonitorMode::automatic, min or max, or the "
                    "word \"auto\", \"min\" or \"max\"");
  CHECK_THROWS_AS(make({.patience = -1}), ls::UsageError);
  CHECK_THROWS_WITH(make({.min_delta = recorded::nan}),
                    ContainsSubstring("min_delta is nan; it must be finite"));
}
