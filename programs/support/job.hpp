/// \file
/// A run of a program, as its units see it. Includes neither CLI11 nor the JSON library,
/// which are slow to compile.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/concepts/callback.hpp>
#include <lockstep/core/function_ref.hpp>
#include <lockstep/onnx.hpp>
#include <lockstep/training/fit_options.hpp>
#include <lockstep/training/history.hpp>
#include <lockstep/training/report/profile.hpp>
#include <lockstep/training/signal_stop.hpp>

#include "support/options.hpp"
#include "support/report.hpp"

namespace support {

/// A run of a program: its options, callbacks, signals and report.
class Job {
 public:
  Job(const Program& program, Options options, Report& report);
  const Options& options() const { return options_; }

  /// Adds a callback for `train`; its hooks run after those of the report.
  void add(std::shared_ptr<lockstep::Callback> callback);

  /// Logs, once per job, that training uses the `drawn` examples because the command line names no
  /// data; --data names `real` ones.
  void note_drawn(bool is_chief, const std::string& drawn, const std::string& real);

  /// Each example has this many tokens, of which the report has those of a second.
  void count_tokens(std::size_t per_example) { report_.tokens_per_example = per_example; }
  /// Shows a text of the model at the end, and in the report.
  void show_generated(std::string text) { report_.generated = std::move(text); }

  /// Describes the model and the job in the report. Called before anything can fail. Converts a
  /// per-replica batch size to the global one.
  template <class Model>
  void describe(const Model& model) {
    if (std::exchange(options_.batch_is_per_replica, false)) options_.batch *= model.replicas();
    report_.describe(support::describe(model, options_), model.is_chief());
  }

  /// Trains `model` according to the options; `validation` may be null. Calls `after(history)`
  /// unless a signal interrupted training.
  template <class Model, class Train, class Validation>
  void train(Model& model, const Train& train, const Validation* validation,
             lockstep::FunctionRef<void(const lockstep::History&)> after) {
    handle_signals();
    describe(model);
    if (options_.init) {
      check_float32(*options_.init);
      model.load_weights(*options_.init);
    }
    std::vector<std::string> digests;  // of all replicas of the job; empty after an error
    const auto fit = [&](const lockstep::FitOptions& options) {
      const lockstep::History history =
          validation ? model.fit(train, *validation, options) : model.fit(train, options);
      // Decided before the next exchange: on every worker as long as no signal comes in between.
      const bool interrupted = signal() != 0;
      digests = model.job_replica_weights_sha256();
      describe(model);  // members and chief of an elastic job may have changed
      if (!interrupted) after(history);
    };
    const auto finish = [&](const Recorder& recorder) {
      try {
        if (digests.empty()) digests = model.replica_weights_sha256();
      } catch (const lockstep::PeerLost&) {  // this worker has left its elastic job
      }
      std::size_t planned = 0;
      for (std::size_t i = 0; i < model.local_replicas(); ++i) planned += model.memory(i).total();
      report_.finish(recorder, std::move(digests), planned, model.update_counts());
    };
    run(model.is_chief(), fit, finish);
    if (options_.save) {
      model.save_weights(*options_.save);
      if (options_.saves_architecture) model.save_architecture(architecture_path(*options_.save));
    }
    if (options_.export_onnx) lockstep::export_onnx(model, *options_.export_onnx);
    if (options_.profile && signal() == 0) write_profile(model.profile(train), *options_.profile);
  }
  /// \throws WeightsError for a tensor of another type: --init reads what --save writes, while
  /// load_weights converts.
  static void check_float32(const std::string& path);
  /// The signal that ended training, or 0.
  int signal() const { return stop_ ? stop_->signal() : 0; }

 private:
  /// Makes signals stop training instead of the process.
  void handle_signals();
  /// The part of `train` that does not depend on the model. `finish` fills the report, even after
  /// an error.
  void run(bool is_chief, lockstep::FunctionRef<void(const lockstep::FitOptions&)> fit,
           lockstep::FunctionRef<void(const Recorder&)> finish);
  /// Writes the JSON file, and the table to stderr, since stdout is for progress.
  static void write_profile(const lockstep::Profile& profile, const std::string& path);

  /// The callback of --tensorboard.
  std::shared_ptr<lockstep::Callback> tensorboard() const;

  const bool has_optimizers_, has_depths_;  // as in Program
  Options options_;
  Report& report_;
  std::vector<std::shared_ptr<lockstep::Callback>> callbacks_;
  std::optional<lockstep::SignalStop> stop_;
};

}  // namespace support
