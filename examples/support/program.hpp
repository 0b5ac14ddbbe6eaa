/// \file
/// The frame of an example program: options in, exit code out. Invariants: every error ends as one
/// paragraph on stderr; paths are tried before training starts; a report asked for is written also
/// when training fails.
///
/// Exit codes: 0 done; 1 an error; 2 the command line or the description of the cluster is wrong; 3
/// another process of the job failed, left or never came; 130, 143 after SIGINT, SIGTERM.
#pragma once

#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include <lockstep/core/error.hpp>
#include <lockstep/training/progress.hpp>
#include <lockstep/training/signal_stop.hpp>

#include "support/options.hpp"
#include "support/report.hpp"

namespace support {

/// The command line asks for a combination that was not built.
class NotBuilt : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {

inline bool same_file(const std::optional<std::string>& a, const std::optional<std::string>& b) {
  if (!a || !b) return false;
  namespace fs = std::filesystem;
  const auto whole = [](const std::string& path) {
    std::error_code code;
    auto resolved = fs::weakly_canonical(fs::absolute(path, code), code);
    return code ? fs::path(path).lexically_normal() : resolved;
  };
  return whole(*a) == whole(*b);
}

/// \throws CLI::ParseError if the report would replace the weights.
inline void check_files_differ(const Options& options) {
  for (const auto& [name, path] : {std::pair("--save", &options.save), {"--init", &options.init}})
    if (same_file(*path, options.report))
      throw CLI::ValidationError(std::string(name) + " and --report",
                                 "both name the file " + **path + "; give each its own");
}

/// Until a job of several processes trains, a signal ends this one at once: it waits for others,
/// and there is nothing to save.
inline void end_by_signals() {
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int n) { ::_exit(128 + n); });
}

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

  /// Says in the report what is trained, and by whom; before anything can fail.
  template <class Model>
  void describe(const Model& model) {
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
    auto recorder = std::make_shared<Recorder>();
    lockstep::FitOptions fit{.epochs = options_.epochs,
                             .steps_per_epoch = options_.steps_per_epoch,
                             .verify_every = options_.verify_every,
                             .callbacks = {recorder},
                             .stop = stop_->token(),
                             .progress = options_.progress};
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
  }
  int signal() const { return stop_ ? stop_->signal() : 0; }

 private:
  Options options_;
  Report& report_;
  std::optional<lockstep::SignalStop> stop_;
};

/// Runs `body(Job&)`; what main returns.
template <class Body>
int run(const Program& program, int argc, char** argv, Body&& body) {
  Options options;
  try {
    options = parse(program, argc, argv);
    detail::check_files_differ(options);
  } catch (const CLI::CallForHelp&) {
    return 0;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(), error.what());
    return 2;
  }
  Report report(program.name);
  const auto path = options.report;
  const std::size_t batch = options.batch;
  int code = 0;
  std::string error;
  try {
    if (path) lockstep::check_writable(*path);
    Job job(program, std::move(options), report);
    body(job);
    if (job.signal() != 0) code = 128 + job.signal();
  } catch (const NotBuilt& e) {
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(), e.what());
    return 2;
  } catch (const lockstep::UsageError& e) {
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(), e.what());
    return 2;
  } catch (const lockstep::PeerLost& e) {
    code = 3;
    error = e.what();
    report.fail(error);
  } catch (const std::bad_alloc&) {
    code = 1;
    error = "there is not enough memory for a batch of " + std::to_string(batch) +
            " examples; use a smaller --batch";
    report.fail(error);
  } catch (const std::exception& e) {
    code = 1;
    error = e.what();
    report.fail(error);
  }
  try {
    if (path && report.is_asked_for()) report.write(*path);
  } catch (const std::exception& e) {
    if (code == 0) error = e.what();
    if (code == 0) code = 1;
  }
  // Who lost a peer names that one only: all survivors say the same.
  const std::string speaker = code == 1 ? report.speaker() : "";
  if (!error.empty())
    std::fprintf(stderr, "%s: %s%s\n", program.name.c_str(), speaker.c_str(), error.c_str());
  return code;
}

}  // namespace support
