// The options of checkpoints, and the thread that writes them.
#include "lockstep/training/checkpoint/checkpoint_writer.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "lockstep/checkpoints.hpp"
#include "resume_support.hpp"
#include "unit/training/model_support.hpp"

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

auto model() {
  return ls::Model{line::Net{}, line::Double{}, ls::MeanSquaredError{},
                   ls::SGD{.learning_rate = 0.1}};
}

ls::FitOptions options(const ls::CheckpointOptions& checkpoint) {
  return {.epochs = 3, .checkpoint = checkpoint, .progress = ls::ProgressStyle::none};
}

}  // namespace

TEST_CASE("fit without a directory writes nothing") {
  auto m = model();
  m.fit(line::points() | ls::batch(5), options({.every = 1}));
  CHECK(m.steps() == 6);
}

TEST_CASE("a save waits for the one before it, so at most one is in memory") {
  const testing::Folder folder;
  static std::atomic<int> writing{0}, most{0}, saves{0};
  ls::detail::checkpoint_fault() = [](std::string_view operation) {
    if (operation == "mkdir entry") {
      most = std::max<int>(most, ++writing);
      ++saves;
    }
    if (operation == "rename entry") {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      --writing;
    }
    return 0;
  };
  auto m = model();
  m.fit(line::points() | ls::batch(5), options({.directory = folder / "run", .every = 1}));
  ls::detail::checkpoint_fault() = nullptr;
  CHECK(saves == 6);
  CHECK(most == 1);
  CHECK(ls::detail::CheckpointDirectory(folder / "run").steps() ==
        std::vector<std::uint64_t>{4, 5, 6});
}

TEST_CASE("newer checkpoints that another process has written stay, and the newest is the latest") {
  const testing::Folder folder;
  const ls::detail::CheckpointDirectory directory(folder / "run");
  auto m = model();
  auto o = options({.directory = directory.path(), .every = 1, .keep = 1, .asynchronous = false});
  o.callbacks = {ls::LambdaCallback{.on_epoch_begin = [&](int epoch, const ls::Logs&) {
    if (epoch == 1)
      for (const std::uint64_t step : {98u, 99u})
        std::filesystem::copy(directory.path_of(2), directory.path_of(step),
                              std::filesystem::copy_options::recursive);
  }}};
  m.fit(line::points() | ls::batch(5), o);
  CHECK(directory.steps() == std::vector<std::uint64_t>{98, 99});
  std::string latest;
  std::ifstream(folder / "run/latest") >> latest;
  CHECK(latest == "step-000000099");
}

TEST_CASE("the name of the best value must be one that fit logs, or have a mode") {
  const testing::Folder folder;
  auto m = model();
  CHECK_THROWS_WITH(m.fit(line::points() | ls::batch(5),
                          options({.directory = folder / "run", .best = "val_lss"})),
                    ContainsSubstring("checkpoint: fit logs no value named 'val_lss'"));
}

TEST_CASE("a checkpoint in use by another run is refused before the first step") {
  const testing::Folder folder;
  ls::detail::CheckpointDirectory other(folder / "run");
  other.open_for_writing();
  auto m = model();
  CHECK_THROWS_WITH(m.fit(line::points() | ls::batch(5), options({.directory = folder / "run"})),
                    ContainsSubstring("another process writes checkpoints here"));
  CHECK(m.steps() == 0);
}

TEST_CASE("TrainingParams show that a run continues, and its first step and epoch") {
  const testing::Folder folder;
  struct Params : ls::Callback {
    void on_train_begin(const ls::Logs&) override { seen = params(); }
    ls::TrainingParams seen;
  };
  const auto run = [&](int epochs) {
    auto callback = std::make_shared<Params>();
    auto m = model();
    auto o = options({.directory = folder / "run"});
    o.epochs = epochs;
    o.callbacks = {callback};
    m.fit(line::points() | ls::batch(5), o);
    return callback->seen;
  };
  const auto first = run(1), second = run(3);
  CHECK_FALSE(first.resumed);
  CHECK(first.first_step == 0);
  CHECK(second.resumed);
  CHECK(second.first_step == 2);
  CHECK(second.initial_epoch == 1);
}
