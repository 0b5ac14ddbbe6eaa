/// \file
/// `Model::fit`: epochs of executions of steps, with validations between them. Invariants: hooks
/// are called in Keras' order; all processes of a job take the same way through the loop.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "lockstep/concepts/device.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/core/phase.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/training/checks/model_signature.hpp"
#include "lockstep/training/checks/run_checks.hpp"
#include "lockstep/training/evaluation.hpp"
#include "lockstep/training/fit_options.hpp"
#include "lockstep/training/history.hpp"
#include "lockstep/training/report/start_line.hpp"
#include "lockstep/training/run.hpp"
#include "lockstep/training/step/batches.hpp"

namespace lockstep::detail {

/// In the place of validation data; nothing that evaluates is compiled for it.
struct NoValidation {};

template <class Replicas, class Validation>
struct ValidationBatches {
  using type = Batches<Replicas, Validation>;
};
template <class Replicas>
struct ValidationBatches<Replicas, NoValidation> {
  using type = NoValidation;
};

/// One call of `fit`. `Model`: what is asked of it is public.
template <class Model, class Replicas, class Train, class Validation>
class FitLoop {
 public:
  /// Checks the options and the data, and takes the memory for batches.
  [[gnu::cold]] FitLoop(Model& model, Replicas& replicas, BetweenRuns& kept, const Train& train,
                        const Validation& validation, const FitOptions& options)
      : model_(model),
        replicas_(replicas),
        kept_(kept),
        train_(train),
        validation_(validation),
        options_(checked(options, train)),
        run_(model, replicas, kept, options),
        batches_(training_batches()),
        validation_batches_(validation_batches()),
        first_pass_(first_pass(kept.passes, options)),
        most_steps_(options.steps_per_epoch.value_or(std::numeric_limits<std::uint64_t>::max())) {}

  History run() {
    begin();
    for (int epoch = options_.initial_epoch; epoch < options_.epochs && !ends_; ++epoch) {
      begin_epoch(epoch);
      const bool has_trained = train_epoch(epoch);
      if (stop_.now || !has_trained) break;  // this epoch was not finished
      take_logs();
      if constexpr (validates)
        if ((epoch + 1) % options_.validation_freq == 0) validate();
      end_epoch(epoch);
    }
    if (model_.updates() > first_update_) replicas_.take_averages();
    run_.callbacks.on_train_end(logs_);
    return std::move(history_);
  }

 private:
  using Stop = typename Replicas::Stop;
  static constexpr bool validates = !std::same_as<Validation, NoValidation>;

  static const FitOptions& checked(const FitOptions& options, const Train& train) {
    check_options(options);
    if (!train.size() && !options.steps_per_epoch)
      throw UsageError("fit: the data never end, so an epoch has no end; give .steps_per_epoch");
    return options;
  }

  Batches<Replicas, Train> training_batches() {
    run_.numbers.epochs = options_.epochs;
    run_.numbers.initial_epoch = options_.initial_epoch;
    run_.numbers.steps = step_count(train_, options_.steps_per_epoch);
    run_.numbers.batch_size = train_.batch_size();
    run_.callbacks.add(history_);
    check_class_weights<typename Replicas::Network, typename Replicas::Loss>(options_.class_weight);
    if constexpr (!HostDevice<typename Replicas::device>) {
      replicas_.prepare(train_.batch_size());
      if constexpr (validates) replicas_.prepare(validation_.batch_size());
    }
    return batches_over(replicas_, train_, "fit: the training", options_.class_weight);
  }
  typename ValidationBatches<Replicas, Validation>::type validation_batches() {
    if constexpr (validates) {
      if (!validation_.size() && !options_.validation_steps)
        throw UsageError("fit: the validation data never end; give .validation_steps");
      return batches_over(replicas_, validation_, "fit: the validation");
    } else {
      return {};
    }
  }

  /// What stands before the first epoch: the data, the other processes, the first hook.
  void begin() {
    if (options_.steps_per_epoch)
      batches_.begin({model_.seed(), first_pass_}, examples_before(train_.batch_size(), options_));
    first_update_ = model_.updates();
    auto& session = replicas_.session();
    if constexpr (!Replicas::is_one_process)
      session.agree("fit", fit_signature(train_, validation_, options_, model_.steps(), first_pass_,
                                         model_.learning_rate(), kept_.rate.has_value()));
    replicas_.verify();
    if constexpr (!Replicas::is_one_replica)
      if (session.replicas() > 1 && session.is_chief() && options_.progress != ProgressStyle::none)
        log(LogLevel::info, start_line(Replicas::Strategy::name, session.replicas(),
                                       session.virtual_shards(), train_.batch_size()));
    note(Phase::callback);
    run_.callbacks.on_train_begin({});
  }

  void begin_epoch(int epoch) {
    note(Phase::callback);
    run_.callbacks.on_epoch_begin(epoch, {});
    running_.reset();
    const auto done = static_cast<std::uint64_t>(epoch - options_.initial_epoch);
    const std::uint64_t pass = first_pass_ + (options_.steps_per_epoch ? 0 : done);
    if (!options_.steps_per_epoch) batches_.begin({model_.seed(), pass});
    kept_.passes = std::max(kept_.passes, pass + 1);  // a hook may have trained on later ones
  }

  /// The steps of an epoch, until it ends or a stop is asked for; false if there was none.
  bool train_epoch(int epoch) {
    std::uint64_t done = 0;
    while (done < most_steps_) {
      const Execution made = execute(done);
      if (made.steps > 0) {
        end_execution(made, done);
        done += made.steps;
        if (stop_.training || stop_.now) break;
      }
      if (!made.has_data) {
        run_out(epoch, done);
        break;
      }
    }
    return done > 0;
  }

  /// Some steps without a hook between them.
  struct Execution {
    std::uint64_t before;  ///< steps of the model's life
    std::uint64_t steps = 0;
    bool has_data = true;
  };
  /// `done`: steps of this epoch so far.
  Execution execute(std::uint64_t done) {
    const std::uint64_t most = std::min(options_.steps_per_execution, most_steps_ - done);
    Execution made{model_.steps()};
    first_update_ = std::min(first_update_, model_.updates());  // a hook may reset the optimizer
    while (made.steps < most && (made.steps == 0 || !run_.stops_alone())) {
      note(Phase::data);
      made.has_data = batches_.next(batch_);
      if (!made.has_data) break;
      if (made.steps == 0) run_.callbacks.on_train_batch_begin(static_cast<std::size_t>(done), {});
      replicas_.train(batch_, model_.learning_rate(), run_.asked_with_rate(),
                      made.steps + 1 == most);
      run_.take_rate();
      ++made.steps;
    }
    if (made.steps > 0 && made.steps < most) replicas_.settle();
    return made;
  }
  /// `done`: steps of this epoch before it.
  void end_execution(const Execution& made, std::uint64_t done) {
    replicas_.take(running_);
    const std::uint64_t each = options_.verify_every;
    if (each > 0 && made.before / each != model_.steps() / each) replicas_.verify();
    const Stop agreed = replicas_.agreed();
    run_.callbacks.on_train_batch_end(static_cast<std::size_t>(done + made.steps - 1),
                                      running_.logs());
    stop_ = run_.decided(agreed);
  }
  /// The data have ended, after `done` steps of an epoch. \throws UsageError if there were none for
  /// the first epoch.
  [[gnu::cold]] void run_out(int epoch, std::uint64_t done) {
    if (done == 0 && epoch == options_.initial_epoch)
      throw UsageError({"fit: no data are left for epoch ", epoch + 1,
                        "; lower .initial_epoch or add ls::repeat before ls::batch"});
    if (!options_.steps_per_epoch) return;
    log(LogLevel::warning, text({"fit: the data ran out in epoch ", epoch + 1, ", step ", done,
                                 "; training ends; add ls::repeat before ls::batch"}));
    ran_out_ = true;
  }

  /// A value of a step alone is now the epoch's too.
  void take_logs() {
    logs_.clear();
    for (const auto& [name, value] : running_.logs()) logs_.set(name, value);
    running_.copy_totals(kept_.totals);
  }

  void validate() {
    const Evaluated found = evaluate_over(run_, validation_batches_, options_.validation_steps);
    if (!found.is_whole) return;
    for (const auto& [name, value] : found.logs) logs_.set("val_" + name, value);
  }

  void end_epoch(int epoch) {
    note(Phase::callback);
    run_.end_epoch(epoch, logs_);
    replicas_.session().end_epoch(epoch);
    replicas_.exchange_stop(run_.asked_with_rate());
    run_.take_rate();
    stop_ = run_.decided(replicas_.agreed());
    ends_ = stop_.now || stop_.training || ran_out_;
  }

  void note(Phase phase) { replicas_.session().note(model_.steps(), phase); }

  Model& model_;
  Replicas& replicas_;
  BetweenRuns& kept_;
  const Train& train_;
  const Validation& validation_;
  const FitOptions& options_;
  History history_;  // must outlive run_, which has a pointer to it
  Run<Model, Replicas> run_;
  Batches<Replicas, Train> batches_;
  typename ValidationBatches<Replicas, Validation>::type validation_batches_;
  const std::uint64_t first_pass_;
  // Not asked for in the loop: there g++ 12 warns of an absent number at -O3.
  const std::uint64_t most_steps_;
  std::uint64_t first_update_ = 0;  // the least number of updates since the begin
  typename Replicas::Batch batch_;
  typename Replicas::Running running_;
  Logs logs_;  // of the last epoch
  Stop stop_;
  bool ran_out_ = false, ends_ = false;
};

}  // namespace lockstep::detail
