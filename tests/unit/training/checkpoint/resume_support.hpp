/// \file
/// Runs that are interrupted between two steps and continue in a new model, and the comparison of
/// everything that such a model holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/checkpoints.hpp"
#include "lockstep/lockstep.hpp"
#include "support/folder.hpp"

namespace resume {

namespace ls = lockstep;

/// Collects all lines of the log, instead of writing them.
class Log {
 public:
  Log()
      : before_(ls::set_log(
            [this](ls::LogLevel, std::string_view line) { text += std::string(line) + "\n"; })) {}
  ~Log() { ls::set_log(std::move(before_)); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  std::string text;

 private:
  ls::LogSink before_;
};

/// Ends a run as a crash would: without a checkpoint of this moment.
struct Crash {};

/// Crashes after the step with this number, counted over the model's life.
class CrashAfter : public ls::Callback {
 public:
  explicit CrashAfter(std::uint64_t step) : step_(step) {}
  void on_train_begin(const ls::Logs&) override { made_ = params().first_step; }
  void on_train_batch_end(std::size_t, const ls::Logs&) override {
    if (++made_ == step_) throw Crash{};
  }

 private:
  std::uint64_t step_, made_ = 0;
};

/// Everything that a checkpoint of the model holds, as bytes.
template <class Model>
std::string state_of(Model& model) {
  const testing::Folder folder;
  const std::string path = folder / "state";
  model.save_checkpoint(path);
  const ls::detail::CheckpointDirectory directory(path);
  const auto entry = directory.read(directory.steps().back());
  std::string all = entry.manifest;
  for (const auto& [name, bytes] : entry.files)
    all += name + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return all;
}

/// The result of a run.
struct Outcome {
  std::string state;
  std::vector<int> epochs;
  std::vector<double> losses;
  bool operator==(const Outcome&) const = default;
};

/// Trains with `fit(model, checkpoint, callbacks)`, which must return the history.
template <class Make, class Fit>
Outcome train(const Make& make, const Fit& fit, const ls::CheckpointOptions& checkpoint,
              const ls::Callbacks& extra = {}) {
  auto model = make();
  const ls::History history = fit(model, checkpoint, extra);
  return {state_of(model), history.epoch,
          history.contains("loss") ? history["loss"] : std::vector<double>{}};
}

/// The same, but the process "crashes" after each of the steps `crashes`, and a new model continues.
template <class Make, class Fit>
Outcome train_with_crashes(const Make& make, const Fit& fit,
                           const ls::CheckpointOptions& checkpoint,
                           const std::set<std::uint64_t>& crashes) {
  for (const std::uint64_t step : crashes) {
    try {
      auto model = make();
      fit(model, checkpoint, ls::Callbacks{std::make_shared<CrashAfter>(step)});
    } catch (const Crash&) {
    }
  }
  return train(make, fit, checkpoint);
}

}  // namespace resume
