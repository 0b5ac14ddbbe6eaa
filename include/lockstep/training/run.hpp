/// \file
/// A call of fit, evaluate or predict: its callbacks, and what they may do to it. Invariant: no
/// callback has a control when the call is over.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/core/phase.hpp"
#include "lockstep/training/callbacks/callback_list.hpp"
#include "lockstep/training/report/progress.hpp"

namespace lockstep::detail {

template <class Model, class Replicas>
struct Run final : TrainingControl {
  [[gnu::cold]] Run(Model& owner, Replicas& all, std::vector<std::string> metric_names,
                    const std::vector<std::shared_ptr<Callback>>& user, ProgressStyle progress)
      : model(owner), replicas(all), reports(progress), callbacks(user) {
    numbers.metrics = std::move(metric_names);
    numbers.rank = static_cast<int>(model.rank());
    numbers.replicas = static_cast<int>(model.replicas());
    numbers.first_step = model.steps();
    replicas.forget_stop();
    replicas.forget_steps();
    if (progress != ProgressStyle::none && model.is_chief()) callbacks.add(reports);
    callbacks.set_control(this);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  [[gnu::cold, gnu::noinline]] ~Run() override {
    replicas.session().note(model.steps(), Phase::idle);
  }

  auto asked(const std::stop_token& token) const {
    return typename Replicas::Stop{token.stop_requested(), stopped};
  }
  void stop_training() override { stopped = true; }
  bool stop_requested() const override { return stopped; }
  double learning_rate() const override { return model.learning_rate(); }
  void set_learning_rate(double rate) override { model.set_learning_rate(rate); }
  void log(std::string_view name, double value) override {
    if (!is_at_epoch_end)
      throw UsageError({"callback: log('", name, "') outside of on_epoch_end; call it there"});
    added.set(name, value);
  }
  std::vector<std::byte> weights() const override { return replicas.copy(); }
  bool is_finite() const override { return replicas.is_finite(); }
  std::string not_finite() const override { return replicas.not_finite(); }
  void set_weights(std::span<const std::byte> copy) override { replicas.restore(copy); }
  const TrainingParams& params() const override { return numbers; }

  /// What one callback adds, the next one finds.
  void end_epoch(int epoch, Logs& logs) {
    is_at_epoch_end = true;
    callbacks.on_epoch_end(epoch, logs, [&] {
      for (const auto& [name, value] : added) logs.set(name, value);
      added.clear();
    });
    is_at_epoch_end = false;
  }

  Model& model;
  Replicas& replicas;
  TrainingParams numbers;
  Progress reports;  // must outlive the list, which has a pointer to it
  CallbackList callbacks;
  bool stopped = false, is_at_epoch_end = false;
  Logs added;
};

}  // namespace lockstep::detail
