/// \file
/// A run of an example program, as its units see it. Names neither the command line's library nor
/// that of the report.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/concepts/callback.hpp>
#include <lockstep/core/function_ref.hpp>
#include <lockstep/data/sources/splits.hpp>
#include <lockstep/training/fit_options.hpp>
#include <lockstep/training/report/profile.hpp>
#include <lockstep/training/signal_stop.hpp>

#include "support/options.hpp"
#include "support/report.hpp"

namespace support {

/// A run of a program.
class Job {
 public:
  Job(const Program& program, Options options, Report& report);
  const Options& options() const { return options_; }

  /// Called before each epoch and step of `train`, after what the report needs.
  void add(std::shared_ptr<lockstep::Callback> callback);

  /// Logs, once for the job, that the command line names no data and `source` is used instead.
  void note_drawn(bool is_chief, const lockstep::datasets::Splits& source);

  /// Says in the report what is trained, and by whom; before anything can fail. From here on the
  /// batch is that of all replicas.
  template <class Model>
  void describe(const Model& model) {
    if (std::exchange(options_.batch_is_per_replica, false)) options_.batch *= model.replicas();
    report_.describe(support::describe(model, options_.batch), model.is_chief());
  }

  /// Trains `model` as the options say; `validation` may be null. `after` runs when training was
  /// not interrupted.
  template <class Model, class Train, class Validation>
  void train(Model& model, const Train& train, const Validation* validation,
             lockstep::FunctionRef<void()> after) {
    take_signals();
    describe(model);
    if (options_.init) model.load_weights(*options_.init);
    const auto fit = [&](const lockstep::FitOptions& options) {
      if (validation)
        model.fit(train, *validation, options);
      else
        model.fit(train, options);
      if (signal() == 0) after();
    };
    const auto finish = [&](const Recorder& recorder) {
      auto digests = model.replica_weights_sha256();
      // All replicas of this process: the first has the largest slices.
      const std::size_t planned = model.memory().total() * digests.size();
      report_.finish(recorder, std::move(digests), planned);
    };
    run(model.is_chief(), fit, finish);
    if (options_.save) model.save_weights(*options_.save);
    if (options_.profile && signal() == 0) write_profile(model.profile(train), *options_.profile);
  }
  int signal() const { return stop_ ? stop_->signal() : 0; }

 private:
  /// From here on a signal ends training, not the process.
  void take_signals();
  /// What of `train` is the same for all models: `finish` makes the report, also after an error.
  void run(bool is_chief, lockstep::FunctionRef<void(const lockstep::FitOptions&)> fit,
           lockstep::FunctionRef<void(const Recorder&)> finish);
  /// The table goes to stderr: stdout is the progress'.
  static void write_profile(const lockstep::Profile& profile, const std::string& path);

  Options options_;
  Report& report_;
  std::vector<std::shared_ptr<lockstep::Callback>> callbacks_;
  std::optional<lockstep::SignalStop> stop_;
};

}  // namespace support
