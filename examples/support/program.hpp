/// \file
/// The frame of an example program: options in, exit code out. Invariants: every error ends as one
/// paragraph on stderr; paths are tried before training starts; a report asked for is written also
/// when training fails.
///
/// Exit codes: 0 done; 1 an error; 2 the command line is wrong; 130, 143 after SIGINT, SIGTERM.
#pragma once

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

}  // namespace detail

/// A run of a program.
class Job {
 public:
  Job(Options options, Report& report) : options_(std::move(options)), report_(report) {}
  const Options& options() const { return options_; }

  /// Trains `model` as the options say; `validation` may be null. `after` runs when training was
  /// not interrupted.
  template <class Model, class Train, class Validation, class After>
  void train(Model& model, const Train& train, const Validation* validation, After&& after) {
    if (options_.init) model.load_weights(*options_.init);
    if (options_.save) lockstep::check_writable(*options_.save);
    report_.describe(model, options_.batch);
    auto recorder = std::make_shared<Recorder>();
    const lockstep::FitOptions fit{.epochs = options_.epochs,
                                   .steps_per_epoch = options_.steps_per_epoch,
                                   .verify_every = options_.verify_every,
                                   .callbacks = {recorder},
                                   .stop = stop_.token(),
                                   .progress = options_.progress};
    try {
      if (validation)
        model.fit(train, *validation, fit);
      else
        model.fit(train, fit);
      if (stop_.signal() == 0) after();
    } catch (...) {
      report_.finish(model, *recorder);
      throw;
    }
    report_.finish(model, *recorder);
    if (options_.save) model.save_weights(*options_.save);
  }
  int signal() const { return stop_.signal(); }

 private:
  Options options_;
  Report& report_;
  lockstep::SignalStop stop_;
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
    Job job(std::move(options), report);
    body(job);
    if (job.signal() != 0) code = 128 + job.signal();
  } catch (const NotBuilt& e) {
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(), e.what());
    return 2;
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
    if (path) report.write(*path);
  } catch (const std::exception& e) {
    if (code == 0) error = e.what();
    if (code == 0) code = 1;
  }
  if (!error.empty()) std::fprintf(stderr, "%s: %s\n", program.name.c_str(), error.c_str());
  return code;
}

}  // namespace support
