/// \file
/// A run of an example program, as its units see it. Names neither the command line's library nor
/// that of the report.
#pragma once

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/concepts/callback.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/core/log.hpp>
#include <lockstep/data/sources/splits.hpp>
#include <lockstep/files/atomic_file.hpp>
#include <lockstep/training/fit_options.hpp>
#include <lockstep/training/report/progress.hpp>
#include <lockstep/training/signal_stop.hpp>

#include "support/options.hpp"
#include "support/report.hpp"

namespace support {

namespace detail {

/// Until a job of several processes trains, a signal ends this one at once: it waits for others,
/// and there is nothing to save.
inline void end_by_signals() {
  for (const int signal : {SIGINT, SIGTERM})
    if (std::signal(signal, [](int n) { ::_exit(128 + n); }) == SIG_IGN)
      std::signal(signal, SIG_IGN);  // nohup, or a shell's `&`
}

/// Logs a line when training begins, so that what fails before it says one thing only.
class NoteAtStart : public lockstep::Callback {
 public:
  explicit NoteAtStart(std::string note) : note_(std::move(note)) {}
  void on_train_begin(const lockstep::Logs&) override {
    lockstep::log(lockstep::LogLevel::info, note_);
  }

 private:
  std::string note_;
};

}  // namespace detail

/// A run of a program.
class Job {
 public:
  Job(const Program& program, Options options, Report& report)
      : options_(std::move(options)), report_(report) {
    if (program.has_workers)
      detail::end_by_signals();
    else
      stop_.emplace();
  }
  const Options& options() const { return options_; }

  /// Called before each epoch and step of `train`, after what the report needs.
  void add(std::shared_ptr<lockstep::Callback> callback) {
    callbacks_.push_back(std::move(callback));
  }

  /// Logs, once for the job, that the command line names no data and `source` is used instead.
  template <class Model>
  void note_drawn(const Model& model, const lockstep::datasets::Splits& source) {
    if (model.is_chief() && options_.progress != lockstep::ProgressStyle::none)
      add(std::make_shared<detail::NoteAtStart>("training on " + source.name() +
                                                "; --data names a folder with real images"));
  }

  /// Says in the report what is trained, and by whom; before anything can fail. From here on the
  /// batch is that of all replicas.
  template <class Model>
  void describe(const Model& model) {
    if (std::exchange(options_.batch_is_per_replica, false)) options_.batch *= model.replicas();
    report_.describe(model, options_.batch);
  }

  /// Trains `model` as the options say; `validation` may be null. `after` runs when training was
  /// not interrupted.
  template <class Model, class Train, class Validation, class After>
  void train(Model& model, const Train& train, const Validation* validation, After&& after) {
    if (!stop_) stop_.emplace();
    describe(model);
    if (options_.init) model.load_weights(*options_.init);
    if (options_.save && model.is_chief()) lockstep::check_writable(*options_.save);
    if (options_.profile) lockstep::check_writable(*options_.profile);
    auto recorder = std::make_shared<Recorder>();
    lockstep::FitOptions fit{.epochs = options_.epochs,
                             .steps_per_epoch = options_.steps_per_epoch,
                             .steps_per_execution = options_.steps_per_execution,
                             .verify_every = options_.verify_every,
                             .callbacks = {recorder},
                             .stop = stop_->token(),
                             .progress = options_.progress};
    fit.callbacks.insert(fit.callbacks.end(), callbacks_.begin(), callbacks_.end());
    if (!model.is_chief() && options_.progress == lockstep::ProgressStyle::json)
      fit.callbacks.push_back(std::make_shared<lockstep::Progress>(options_.progress));
    try {
      if (validation)
        model.fit(train, *validation, fit);
      else
        model.fit(train, fit);
      if (signal() == 0) after();
    } catch (const lockstep::UsageError& e) {
      report_.finish(model, *recorder);
      if (recorder->has_begun) throw lockstep::Error(e.what());  // 2: nothing was started
      throw;
    } catch (...) {
      report_.finish(model, *recorder);
      throw;
    }
    report_.finish(model, *recorder);
    if (options_.save) model.save_weights(*options_.save);
    if (options_.profile && signal() == 0) write_profile(model.profile(train), *options_.profile);
  }
  int signal() const { return stop_ ? stop_->signal() : 0; }

 private:
  /// The table goes to stderr: stdout is the progress'.
  template <class Profile>
  static void write_profile(const Profile& profile, const std::string& path) {
    lockstep::AtomicFile file(path);
    file.write(to_json(profile));
    file.commit();
    std::fputs(to_string(profile).c_str(), stderr);
  }

  Options options_;
  Report& report_;
  std::vector<std::shared_ptr<lockstep::Callback>> callbacks_;
  std::optional<lockstep::SignalStop> stop_;
};

}  // namespace support
