/// \file
/// A fake training loop for testing callbacks: its weights are the number of the last epoch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/training/callbacks/callback_list.hpp"
#include "lockstep/training/export/architecture.hpp"

namespace callbacks_test {

namespace ls = lockstep;

struct FakeLoop : ls::TrainingControl {
  void stop_training() override { stopped = true; }
  bool stop_requested() const override { return stopped; }
  std::uint64_t steps() const override { return made; }
  double learning_rate() const override { return rate; }
  void set_learning_rate(double r) override { rate = r; }
  void log(std::string_view name, double value) override { logs.set(name, value); }
  std::vector<std::byte> weights() const override {
    std::vector<std::byte> bytes(sizeof epoch);
    std::memcpy(bytes.data(), &epoch, sizeof epoch);
    return bytes;
  }
  void set_weights(std::span<const std::byte> bytes) override {
    std::memcpy(&epoch, bytes.data(), sizeof epoch);
  }
  void save_weights(const std::string& path) override { saved.push_back(path); }
  void write_checkpoint(const std::string& directory, std::size_t) override {
    saved.push_back(directory + "/");
  }
  void swap_averages(bool averages) override { has_averages = averages; }
  bool is_finite() const override { return what_is_not_finite.empty(); }
  std::string not_finite() const override { return what_is_not_finite; }
  std::vector<ls::NamedTensor> tensors() const override { return parameters; }
  const ls::TrainingParams& params() const override { return numbers; }
  bool may_log(std::string_view name) const override {
    if (callbacks_log) return true;
    const auto is_metric = [&](std::string_view own) {
      return std::find(numbers.metrics.begin(), numbers.metrics.end(), own) !=
             numbers.metrics.end();
    };
    return is_metric(name) ||
           (numbers.has_validation && name.starts_with("val_") && is_metric(name.substr(4)));
  }
  ls::Architecture architecture() const override { return {}; }

  /// Runs one epoch for each element of `epochs`, until a callback stops. \returns each epoch's
  /// rate.
  std::vector<double> run(const std::shared_ptr<ls::Callback>& callback,
                          const std::vector<ls::Logs>& epochs) {
    return run_each(callback, epochs, [](const auto& same) { return same; });
  }

  /// The same, but after each epoch a new callback of `make()` continues with the state of the one
  /// before it, as in a run that is interrupted after each epoch.
  template <class Make>
  std::vector<double> run_interrupted(const Make& make, const std::vector<ls::Logs>& epochs) {
    return run_each(make(), epochs, [&](const auto& before) { return resumed(before, make()); });
  }

  /// After each epoch goes on with the callback `next(callback)`.
  template <class Next>
  std::vector<double> run_each(std::shared_ptr<ls::Callback> callback,
                               const std::vector<ls::Logs>& epochs, const Next& next) {
    std::vector<double> rates;
    callback->set_control(this);
    callback->on_train_begin({});
    for (std::size_t i = 0; i < epochs.size() && !stopped; ++i) {
      callback->on_epoch_begin(static_cast<int>(i), {});
      rates.push_back(rate);
      epoch = static_cast<int>(i);
      logs = epochs[i];
      callback->on_epoch_end(epoch, logs);
      callback = next(callback);
    }
    callback->on_train_end(logs);
    callback->set_control(nullptr);
    return rates;
  }
  /// `next`, which continues with the state of `before`.
  std::shared_ptr<ls::Callback> resumed(const std::shared_ptr<ls::Callback>& before,
                                        std::shared_ptr<ls::Callback> next) {
    ls::CallbackState state;
    before->save_state(state);
    before->set_control(nullptr);
    next->set_control(this);
    next->on_train_begin({});
    next->load_state(state);
    return next;
  }

  std::vector<std::string> saved;  // paths; directories end in '/'
  bool has_averages = false;
  bool stopped = false;
  double rate = 0.1;
  std::uint64_t made = 0;  // steps
  int epoch = -1;
  ls::Logs logs;
  std::string what_is_not_finite;
  std::vector<ls::NamedTensor> parameters;
  ls::TrainingParams numbers{.metrics = {"loss"}, .has_validation = true};
  bool callbacks_log = false;  // values of any name
};

inline ls::Logs logs_of(const std::vector<std::pair<const char*, double>>& values) {
  ls::Logs logs;
  for (const auto& [name, value] : values) logs.set(name, value);
  return logs;
}

}  // namespace callbacks_test
