#include "lockstep/training/callbacks/model_checkpoint.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "fake_loop.hpp"
#include "support/folder.hpp"
#include "unit/training/model_support.hpp"

namespace {

using namespace callbacks_test;
using Catch::Matchers::ContainsSubstring;
using Names = std::vector<std::string>;

std::vector<ls::Logs> epochs_of(const std::vector<double>& values) {
  std::vector<ls::Logs> epochs;
  for (const double value : values) epochs.push_back(logs_of({{"loss", 1}, {"val_loss", value}}));
  return epochs;
}
Names saved_by(const ls::ModelCheckpoint& options, const std::vector<double>& values) {
  FakeLoop loop;
  loop.run(options, epochs_of(values));
  return loop.saved;
}

}  // namespace

TEST_CASE(
    "ModelCheckpoint saves after each epoch, weights or a checkpoint, under a formatted name") {
  CHECK(
      saved_by({.filepath = "m-{epoch:02d}-{val_loss:.2f}.safetensors", .save_weights_only = true},
               {0.5, 0.25}) == Names{"m-01-0.50.safetensors", "m-02-0.25.safetensors"});
  CHECK(saved_by({.filepath = "run"}, {0.5, 0.25}) == Names{"run/", "run/"});
  CHECK(saved_by({.filepath = "brace{"}, {1}) == Names{"brace{/"});
}

TEST_CASE("ModelCheckpoint with save_best_only saves only improvements") {
  CHECK(saved_by({.filepath = "{epoch}", .save_best_only = true},
                 {3, 2, 2, 4, 1, std::nan(""), 0.5}) == Names{"1/", "2/", "5/", "7/"});
  CHECK(saved_by({.filepath = "{epoch}", .save_best_only = true, .mode = ls::MonitorMode::max},
                 {3, 2, 4}) == Names{"1/", "3/"});
  CHECK(saved_by({.filepath = "{epoch}", .save_best_only = true, .initial_value_threshold = 2.5},
                 {3, 2, 1}) == Names{"2/", "3/"});
}

TEST_CASE("ModelCheckpoint counts steps over epochs") {
  struct Steps {
    FakeLoop loop;
    void run(const std::shared_ptr<ls::Callback>& callback, int epochs, std::size_t steps) {
      callback->set_control(&loop);
      callback->on_train_begin({});
      for (int epoch = 0; epoch < epochs; ++epoch) {
        callback->on_epoch_begin(epoch, {});
        for (std::size_t batch = 0; batch < steps; ++batch) {
          callback->on_train_batch_begin(batch, {});
          callback->on_train_batch_end(batch, logs_of({{"loss", 0.5}}));
        }
        callback->on_epoch_end(epoch, logs_of({{"loss", 0.5}}));
      }
      callback->set_control(nullptr);
    }
  } steps;
  steps.run(
      ls::ModelCheckpoint{.filepath = "{epoch}.{batch}", .save_weights_only = true, .save_freq = 3},
      2, 4);
  CHECK(steps.loop.saved == Names{"1.3", "2.2"});
}

TEST_CASE("ModelCheckpoint continues with its best value and its count of steps") {
  const std::shared_ptr<ls::Callback> first =
      ls::ModelCheckpoint{.filepath = "{epoch}", .save_best_only = true};
  FakeLoop loop;
  loop.run(first, epochs_of({3, 2}));
  ls::CallbackState state;
  first->save_state(state);
  const std::shared_ptr<ls::Callback> second =
      ls::ModelCheckpoint{.filepath = "{epoch}", .save_best_only = true};
  second->load_state(state);
  loop.saved.clear();
  loop.run(second, epochs_of({2.5, 1.5}));
  CHECK(loop.saved == Names{"2/"});
}

TEST_CASE("ModelCheckpoint refuses an empty name, unknown names and formats") {
  CHECK_THROWS_WITH(std::shared_ptr<ls::Callback>(ls::ModelCheckpoint{}),
                    ContainsSubstring("filepath is empty"));
  CHECK_THROWS_WITH(saved_by({.filepath = "{acc}"}, {1}),
                    ContainsSubstring("'acc', but the logs have only epoch, loss, val_loss"));
  CHECK_THROWS_WITH(saved_by({.filepath = "{epoch:.2f}"}, {1}), ContainsSubstring("'epoch:.2f'"));
  CHECK_THROWS_WITH(saved_by({.filepath = "{batch}"}, {1}), ContainsSubstring("'batch'"));
}

TEST_CASE("what ModelCheckpoint saved in fit can be loaded") {
  const testing::Folder folder;
  const auto make = [] {
    return ls::Model{line::Net{}, line::Double{}, ls::MeanSquaredError{},
                     ls::SGD{.learning_rate = 0.1, .momentum = 0.9}};
  };
  auto model = make();
  model.fit(line::points() | ls::batch(5), line::points() | ls::batch(5),
            {.epochs = 3,
             .callbacks = {ls::ModelCheckpoint{.filepath = folder / "w{epoch}.safetensors",
                                               .save_weights_only = true},
                           ls::ModelCheckpoint{.filepath = folder / "run"}},
             .progress = ls::ProgressStyle::none});
  auto weights = make(), all = make();
  weights.load_weights(folder / "w3.safetensors");
  all.load_checkpoint(folder / "run");
  CHECK(weights.weights_sha256() == model.weights_sha256());
  CHECK(all.weights_sha256() == model.weights_sha256());
  CHECK(all.steps() == 6);
  CHECK(ls::detail::CheckpointDirectory(folder / "run").steps() == std::vector<std::uint64_t>{6});
  weights.load_weights(folder / "w2.safetensors");
  CHECK(weights.weights_sha256() != model.weights_sha256());
}
