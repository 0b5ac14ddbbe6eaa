/// \file
/// Whether, when and from where lockstep-run starts a failed job again. Invariant: it reads the names
/// in the directory of checkpoints, and writes nothing.
#pragma once

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/core/process/stop_signals.hpp>

#include "run_launcher.hpp"

namespace lockstep_run {

/// The value of `NAME VALUE` or `NAME=VALUE` in a command.
inline std::optional<std::string> option_of(const std::vector<std::string>& command,
                                            std::string_view name) {
  for (std::size_t i = 1; i < command.size(); ++i) {
    if (command[i] == name && i + 1 < command.size()) return command[i + 1];
    if (command[i].starts_with(std::string(name) + "=")) return command[i].substr(name.size() + 1);
  }
  return std::nullopt;
}

inline std::optional<std::string> checkpoint_directory(const std::vector<std::string>& command) {
  return option_of(command, "--checkpoint");
}

/// The command of a restart: continues from the checkpoints, if it has any.
inline std::vector<std::string> resuming(std::vector<std::string> command) {
  const bool resumes = std::find(command.begin(), command.end(), "--resume") != command.end();
  if (checkpoint_directory(command) && !resumes) command.emplace_back("--resume");
  return command;
}

/// The number of steps of the newest checkpoint, from the name of its folder, step-NUMBER; nullopt
/// if there is none.
inline std::optional<std::uint64_t> newest_step(const std::string& directory) {
  constexpr std::string_view prefix = "step-";
  std::optional<std::uint64_t> newest;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    std::uint64_t step = 0;
    const char* const last = name.data() + name.size();
    const auto read = std::from_chars(name.data() + prefix.size(), last, step);
    if (read.ec == std::errc() && read.ptr == last) newest = std::max(newest.value_or(0), step);
  }
  return newest;
}

/// The waits before restarts: `first`, then twice as long each time, at most 30 s, plus up to a quarter.
/// The random part keeps jobs that failed together, for example with their file server, from starting
/// together.
class RestartDelays {
 public:
  static constexpr std::chrono::duration<double> longest{30};

  explicit RestartDelays(std::chrono::duration<double> first) : first_(first) {}

  std::chrono::duration<double> next() {
    const auto delay = first_ * std::exp2(std::min(doublings_++, 60));
    std::uniform_real_distribution<double> part(1, 1.25);
    return std::min(delay, std::max(longest, first_)) * part(random_);
  }
  void reset() { doublings_ = 0; }

 private:
  std::chrono::duration<double> first_;
  int doublings_ = 0;
  std::mt19937 random_{std::random_device{}()};
};

/// The decision about a start of the job that has ended.
struct Decision {
  bool is_restart = false;
  std::chrono::milliseconds delay{};  ///< before the restart
  std::string sentence{};             ///< the reason, for the log; empty if there was no failure
};

/// Whether a worker that exited with this code has ended in order because of a signal.
inline bool is_end_by_signal(int code) {
  return std::any_of(lockstep::detail::stop_signals.begin(), lockstep::detail::stop_signals.end(),
                     [code](int signal) { return code == 128 + signal; });
}

/// Whether another start may succeed. Not after a refused command (2), a program that cannot be run
/// (126, 127), and a signal on which a worker has ended in order (130, 143, 129).
inline bool is_crash(int code, bool is_killed) {
  if (is_killed) return true;
  for (const int other : {2, 126, 127})
    if (code == other) return false;
  return !is_end_by_signal(code);
}

/// Decides on restarts.
///
///     crash --> a newer checkpoint since the last crash, or less than 3 crashes without one?
///         yes: restart, after first_delay * 2^(restarts since that checkpoint), as RestartDelays
///         no, or no restarts left, or not a crash: the job ends
///
class Restarts {
 public:
  static constexpr int most_failures_at_a_step = 3;

  /// `chief` is the chief's host, "" for this machine. Checkpoints on another one are not looked for.
  Restarts(std::size_t most, std::chrono::duration<double> first_delay,
           const std::vector<std::string>& command, std::string chief = "")
      : most_(most),
        delays_(first_delay),
        chief_(checkpoint_directory(command) ? std::move(chief) : ""),
        directory_(chief_.empty() ? checkpoint_directory(command) : std::nullopt) {}

  /// Restarts so far.
  std::size_t count() const { return count_; }

  Decision after(const Outcome& outcome) {
    if (outcome.failure.empty()) return {};
    // The signal to lockstep-run determines the exit code, not the worker's failure.
    if (outcome.is_interrupted) return {.sentence = outcome.failure};
    const std::string ends = outcome.is_killed ? fmt::format("{}, which gives the exit code {}",
                                                             outcome.failure, outcome.code)
                                               : outcome.failure;
    if (most_ == 0) return {.sentence = ends};
    if (!is_crash(outcome.code, outcome.is_killed))
      return {.sentence = ends + "; the job is not restarted after this exit code"};
    const std::optional<std::uint64_t> step = directory_ ? newest_step(*directory_) : std::nullopt;
    if (directory_) {
      failures_ = step != failed_at_ ? 1 : failures_ + 1;
      if (failures_ == 1) delays_.reset();
      failed_at_ = step;
      if (failures_ == most_failures_at_a_step)
        return {.sentence = fmt::format("{}; the job failed three times {} and is not restarted",
                                        ends, place(step))};
    }
    if (count_ == most_)
      return {.sentence = fmt::format("{}; no restart is left of --max-restarts {}", ends, most_)};
    const auto delay = delays_.next();
    ++count_;
    std::string continues = "without --resume, since the command has no --checkpoint";
    if (!chief_.empty()) continues = fmt::format("from the newest checkpoint on {}", chief_);
    if (directory_)
      continues =
          step ? fmt::format("from step {}", *step) : "from the start, without a checkpoint";
    return {true, std::chrono::ceil<std::chrono::milliseconds>(delay),
            fmt::format("{}; restart {} of {} in {:.1f} s, {}", outcome.failure, count_, most_,
                        delay.count(), continues)};
  }

 private:
  static std::string place(std::optional<std::uint64_t> step) {
    return step ? fmt::format("at step {}", *step) : "before its first checkpoint";
  }

  const std::size_t most_;
  RestartDelays delays_;
  const std::string chief_;  // "": this machine, or there are no checkpoints
  const std::optional<std::string> directory_;
  std::size_t count_ = 0;
  int failures_ = 0;  // in a row, with the same newest checkpoint
  std::optional<std::uint64_t> failed_at_{};
};

}  // namespace lockstep_run
