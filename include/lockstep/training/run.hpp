/// \file
/// A call of fit, evaluate or predict: its callbacks, and what they may do to it. Invariant: no
/// callback has a control when the call is over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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

/// What a model keeps from one call to the next, beside its replicas.
struct BetweenRuns {
  /// The learning rate that was set in the place of the optimizer's own, and, while other processes
  /// do not know it, once more.
  std::optional<double> rate{}, unsaid_rate{};
  std::uint64_t passes = 0;      ///< a checkpoint must keep it: the next pass follows from it
  std::vector<double> totals{};  ///< of the last evaluation or epoch, see RunningLogs
};

template <class Model, class Replicas>
struct Run final : TrainingControl {
  using Stop = typename Replicas::Stop;

  /// `options` live as long.
  [[gnu::cold]] Run(Model& owner, Replicas& all, BetweenRuns& between, const auto& options)
      : Run(owner, all, between, options.callbacks, options.progress, options.stop) {}
  [[gnu::cold]] Run(Model& owner, Replicas& all, BetweenRuns& between,
                    const std::vector<std::shared_ptr<Callback>>& user, ProgressStyle progress,
                    const std::stop_token& stop)
      : model(owner),
        replicas(all),
        kept(between),
        token(stop),
        reports(progress),
        callbacks(user) {
    numbers.metrics = Replicas::Running::names();
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

  Stop asked() const { return {token.stop_requested(), stopped}; }
  /// A rate that was set here travels with the next exchange; what was said there is that of all.
  Stop asked_with_rate() {
    Stop stop = asked();
    if constexpr (!Replicas::is_one_process)
      stop.rate = std::exchange(kept.unsaid_rate, std::nullopt);
    return stop;
  }
  void take_rate() {
    if constexpr (!Replicas::is_one_process)
      if (const auto rate = replicas.agreed().rate) kept.rate = rate;
  }
  /// Whether this process ends now: with others it asks, and waits for the answer.
  bool stops_alone() const { return token.stop_requested() && replicas.is_alone(); }
  /// `agreed` is read right after an exchange, before hooks, which may evaluate and so exchange
  /// again. A process that is alone decides by what it asks for after them.
  Stop decided(const Stop& agreed) const { return replicas.is_alone() ? asked() : agreed; }

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
  BetweenRuns& kept;
  const std::stop_token& token;
  TrainingParams numbers;
  Progress reports;  // must outlive the list, which has a pointer to it
  CallbackList callbacks;
  bool stopped = false, is_at_epoch_end = false;
  Logs added;
};

}  // namespace lockstep::detail
