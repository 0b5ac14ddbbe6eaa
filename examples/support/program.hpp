/// \file
/// The frame of an example program: options in, exit code out. Invariants: every error ends as one
/// paragraph on stderr; paths are tried before training starts; a report asked for is written also
/// when training fails.
///
/// Exit codes: 0 done; 1 an error; 2 the command line or the description of the cluster is wrong; 3
/// another process of the job failed, left or never came; 130, 143 after SIGINT, SIGTERM.
#pragma once

#include <fmt/format.h>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <lockstep/core/error.hpp>
#include <lockstep/files/atomic_file.hpp>
#include <lockstep/training/run_main.hpp>

#include "support/command_line.hpp"
#include "support/job.hpp"
#include "support/report_file.hpp"

namespace support {

/// The command line asks for a combination that was not built.
class NotBuilt : public lockstep::UsageError {
 public:
  using lockstep::UsageError::UsageError;
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
    std::fputs(fmt::format("{}: {}\n", program.name, error.what()).c_str(), stderr);
    return 2;
  }
  Report report{.program = program.name};
  const auto path = options.report;
  const std::size_t batch = options.batch;
  int code = 0;
  std::string error;
  try {
    if (path) lockstep::check_writable(*path);
    Job job(program, std::move(options), report);
    body(job);
    if (job.signal() != 0) code = 128 + job.signal();
  } catch (const std::bad_alloc&) {
    code = 1;
    error =
        fmt::format("there is not enough memory for a batch of {} examples; use a smaller --batch",
                    report.made ? report.made->batch : batch);
  } catch (...) {
    lockstep::ProgramFailure failure = lockstep::current_failure();
    code = failure.exit_code;
    error = std::move(failure.message);
  }
  if (!error.empty()) report.fail(error);
  try {
    if (path && report.is_asked_for && code != 2) write(report, *path);  // 2: nothing was started
  } catch (const std::exception& e) {
    if (code == 0) error = e.what();
    if (code == 0) code = 1;
  }
  // Who lost a peer names that one only: all survivors say the same.
  const std::string speaker = code == 1 ? report.speaker() : "";
  if (!error.empty())
    std::fputs(fmt::format("{}: {}{}\n", program.name, speaker, error).c_str(), stderr);
  return code;
}

}  // namespace support
