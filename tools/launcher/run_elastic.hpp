/// \file
/// Supervises a job whose workers may die and join again: `lockstep-run --elastic`. Invariants: a death
/// ends no other worker unless fewer than `least` are left; a worker is started again under the
/// description of the job that all others have; no worker outlives the launcher.
#pragma once

#include <sys/wait.h>

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "run_child.hpp"
#include "run_launcher.hpp"
#include "run_restart.hpp"

namespace lockstep_run {

/// How many workers a job needs, and how often lost ones are started again.
struct ElasticOptions {
  std::size_t least = 1;  ///< workers without which the job ends
  std::size_t most_restarts = 0;
  std::chrono::duration<double> first_delay{1};
  std::size_t servers = 0;  ///< the last ranks, which are not workers
};

/// The workers that a program of lockstep needs by its own options: `--elastic N`, or one with
/// `--mode async`. nullopt: all.
inline std::optional<std::size_t> least_of(const std::vector<std::string>& command) {
  const std::string name = std::filesystem::path(command.front()).filename().string();
  if (!name.ends_with("_parameter_server") && !name.ends_with("_multi_worker")) return std::nullopt;
  for (const char* const option : {"--elastic", "--min-workers"})
    if (const auto value = option_of(command, option)) {
      std::size_t least = 0;
      const auto read = std::from_chars(value->data(), value->data() + value->size(), least);
      if (read.ec == std::errc() && *read.ptr == '\0' && least > 0) return least;
    }
  if (option_of(command, "--mode") == "async") return 1;
  return std::nullopt;
}

/// Supervises the workers of an elastic job.
///
///     running --0--> done: the job has ended, no other worker is started again
///        ^  \--crash--> waiting: the others go on
///        |                |  \--no restart is left, or not a crash--> lost
///        +---- delay -----+
///
/// All workers end if fewer than `least` run or wait, and if one is refused (2, 126, 127) in its
/// first start: it would be refused again, and the job cannot begin without it. A replacement that
/// exits with 2 is retried: the worker before it may still hold its port.
class ElasticLauncher : private Workers {
 public:
  /// As Launcher; `command` is that of a first start.
  template <class Job>
  ElasticLauncher(Command command, const Job& job, const std::string& log_folder,
                  const ElasticOptions& options)
      : Workers(at_start(command, 0), job, log_folder),
        options_(options),
        command_(std::move(command)),
        places_(count(), Place(options.first_delay)) {}

  /// Waits until all workers have ended. \returns the exit code of lockstep-run
  int wait(const Signals& signals) {
    while (running() || next_start()) {
      poll(signals, next_start());
      if (interrupted() != 0) cancel_restarts();
      reap();
      start_due();
      escalate();
    }
    if (interrupted() != 0) return 128 + interrupted();
    if (!done_at_) return code_of(losses_, [](const Loss&) { return true; });
    return code_of(losses_, [](const Loss& loss) { return loss.matters; });
  }

 private:
  /// One of the job's places, in which workers follow each other.
  struct Place {
    explicit Place(std::chrono::duration<double> first_delay) : delays(first_delay) {}

    std::size_t starts = 0;                      ///< of the job until this worker's; 0: the first
    bool may_be_late = false;                    ///< to join the job, which has ended
    Clock::time_point began = Clock::now();      ///< of this worker
    std::optional<Clock::time_point> starts_at;  ///< of the next one
    RestartDelays delays;
  };
  /// A worker that has failed and was not started again.
  struct Loss {
    std::size_t rank = 0;
    int code = 0;
    bool matters = false;  ///< if others have ended with 0
    bool was_chief = false;
    Clock::time_point at = Clock::now();
  };

  static constexpr std::chrono::seconds time_to_report{1};
  /// A worker that lives longer than this ends a series of crashes, and has joined the job.
  static constexpr std::chrono::seconds time_to_prove{60};
  /// The others notice within this time that the chief died after training, and end with 0.
  static constexpr std::chrono::seconds time_to_notice{3};

  static Command at_start(Command command, std::size_t restarts) {
    command.variables.emplace_back("LOCKSTEP_RESTART", std::to_string(restarts));
    return command;
  }

  void reap() {
    for (const std::size_t rank : collect()) {
      finish(rank);
      const int code = child(rank).code();
      if (code != 0) {
        lose(rank, code);
      } else if (!done_at_ && !(is_ending_ && !is_time_to_report())) {
        finish_job();
      }
    }
    end_late();
  }

  /// The first worker has ended with 0.
  void finish_job() {
    done_at_ = Clock::now();
    for (Loss& loss : losses_)
      loss.matters = loss.was_chief && *done_at_ - loss.at < time_to_notice;
    for (std::size_t rank = 0; rank < count(); ++rank)
      if (places_[rank].starts_at)
        log_line(fmt::format("rank {} is not started again: the job has ended", rank));
    cancel_restarts();
    for (std::size_t rank = 0; rank < count(); ++rank)
      places_[rank].may_be_late = places_[rank].starts > 0 &&
                                  *done_at_ - places_[rank].began < time_to_prove &&
                                  !was_chief(rank);
  }

  /// A replacement that has not joined yet would wait for a job that does not exist any more. One that
  /// has joined cannot be distinguished from it, so each has as long after the job as the others took.
  void end_late() {
    if (!done_at_ || interrupted() != 0 || is_ending_ || ends_late_ || !running()) return;
    for (std::size_t rank = 0; rank < count(); ++rank)
      if (child(rank).running() && !places_[rank].may_be_late) return;
    ends_late_ = true;
    end(std::max<Clock::duration>(time_to_notice, Clock::now() - *done_at_));
  }

  void lose(std::size_t rank, int code) {
    const bool is_killed = WIFSIGNALED(child(rank).status());
    const bool is_replacement = places_[rank].starts > 0;
    if ((is_ending_ || ends_late_) && !is_time_to_report()) {  // the launcher has sent SIGTERM
      if (ends_late_)
        log_line(fmt::format("rank {} was ended: it started too late for the job", rank));
      return;
    }
    // A worker that could not join any more is none of those that have trained, and one that was asked
    // to leave has nothing to do after the job unless it is the chief.
    const bool has_left = !is_killed && is_end_by_signal(code);
    const bool matters = !(is_replacement && code == peer_lost) && !(has_left && !was_chief(rank));
    losses_.push_back({rank, code, matters, was_chief(rank)});
    if (interrupted() != 0 || is_ending_) return;
    const std::string ends = end_of(rank, "ended");
    if (done_at_) return log_line(ends + ", after the job");
    const bool is_refused = !is_killed && (code == 2 || code == 126 || code == 127);
    if (is_refused && !is_replacement)
      return end_all(ends + "; it is not started again after this exit code, and the job ends");
    go_on_without(rank, ends, is_crash(code, is_killed) || (is_replacement && code == 2));
  }

  /// Plans another start if it `may_succeed`; otherwise the job ends if too few workers are left.
  void go_on_without(std::size_t rank, const std::string& ends, bool may_succeed) {
    if (may_succeed && restarts_ < options_.most_restarts) return plan_start(rank, ends);
    std::string reason;
    if (!may_succeed)
      reason = "; it is not started again after this exit code";
    else if (options_.most_restarts > 0)
      reason = fmt::format("; no restart is left of --max-restarts {}", options_.most_restarts);
    std::size_t left = 0;
    const std::size_t workers = count() - options_.servers;
    for (std::size_t other = 0; other < workers; ++other)
      left += child(other).running() || places_[other].starts_at ? 1 : 0;
    const std::string number =
        fmt::format("{} of {} workers {} left", left, workers, left == 1 ? "is" : "are");
    if (left < options_.least)
      return end_all(fmt::format("{}{}; {}, fewer than --elastic {}, and the job ends", ends,
                                 reason, number, options_.least));
    log_line(fmt::format("{}{}; {}", ends, reason, number));
  }

  void plan_start(std::size_t rank, const std::string& ends) {
    Place& place = places_[rank];
    const auto now = Clock::now();
    if (now - place.began > time_to_prove) place.delays.reset();
    const auto delay = std::chrono::ceil<std::chrono::milliseconds>(place.delays.next());
    place.starts_at = now + delay;
    ++restarts_;
    log_line(fmt::format("{}; restart {} of {}, of this worker alone, in {:.1f} s", ends, restarts_,
                         options_.most_restarts, std::chrono::duration<double>(delay).count()));
  }

  void start_due() {
    for (std::size_t rank = 0; rank < count(); ++rank) {
      Place& place = places_[rank];
      if (!place.starts_at || Clock::now() < *place.starts_at) continue;
      place.starts_at.reset();
      place.starts = ++starts_;
      place.began = Clock::now();
      Command command = at_start(command_, starts_);
      command.arguments = resuming(command.arguments);
      command.appends_to_logs = true;
      try {
        start_again(rank, command);
        std::erase_if(losses_, [&](const Loss& loss) { return loss.rank == rank; });
      } catch (const std::exception& error) {  // a limit of processes or files was reached
        go_on_without(rank, fmt::format("rank {} cannot be started again: {}", rank, error.what()),
                      true);
      }
    }
  }

  std::optional<Clock::time_point> next_start() const {
    std::optional<Clock::time_point> next;
    for (const Place& place : places_)
      if (place.starts_at && (!next || *place.starts_at < *next)) next = place.starts_at;
    return next;
  }

  void cancel_restarts() {
    for (Place& place : places_) place.starts_at.reset();
  }

  void end_all(const std::string& sentence) {
    log_line(sentence);
    is_ending_ = true;
    cancel_restarts();
    end(time_to_report);
  }

  /// Whether a worker that has ended, or may end, was the job's chief: of those that train or have
  /// finished the one that joined first, and of several the lowest rank. If all have been started
  /// again they may have formed the job from the start, so that it may also be the lowest of all.
  bool was_chief(std::size_t rank) const {
    bool was_first = true;
    bool was_lowest = std::all_of(places_.begin(), places_.end(),
                                  [](const Place& place) { return place.starts > 0; });
    for (std::size_t other = 0; other < count(); ++other) {
      if (!child(other).running() && child(other).code() != 0) continue;
      was_lowest = was_lowest && other >= rank;
      was_first = was_first &&
                  std::pair(places_[other].starts, other) >= std::pair(places_[rank].starts, rank);
    }
    return was_first || was_lowest;
  }

  /// Whether a code does not report a worker's own failure: it lost another one, or was asked to
  /// leave.
  static bool is_consequence(int code) { return code == peer_lost || is_end_by_signal(code); }
  /// The code of the first of `losses` that count, which is not a consequence if there are others;
  /// 0 if none counts.
  template <class Counts>
  static int code_of(const std::vector<Loss>& losses, const Counts& counts) {
    int code = 0;
    for (const Loss& loss : losses)
      if (counts(loss) && (code == 0 || (is_consequence(code) && !is_consequence(loss.code))))
        code = loss.code;
    return code;
  }

  const ElasticOptions options_;
  const Command command_;
  std::vector<Place> places_;                 // by rank
  std::vector<Loss> losses_;                  // in order of time
  std::size_t restarts_ = 0, starts_ = 0;     // planned, and made
  std::optional<Clock::time_point> done_at_;  // when the first worker ended with 0
  bool is_ending_ = false, ends_late_ = false;
};

}  // namespace lockstep_run
