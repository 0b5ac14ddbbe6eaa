/// \file
/// Supervises the workers of one start of a job (Linux). Invariants: no worker outlives the launcher;
/// the first failure determines the exit code.
#pragma once

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "run_child.hpp"
#include "run_job.hpp"

namespace lockstep_run {

/// The signals that the launcher reads from a descriptor instead of being interrupted.
class Signals {
 public:
  Signals() {
    sigset_t all;
    sigemptyset(&all);
    // Not the signals that nohup or a shell's `&` ignores: a blocked signal is queued even if
    // ignored, and would be read here.
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
      struct sigaction now{};
      ::sigaction(signal, nullptr, &now);
      if (now.sa_handler != SIG_IGN) sigaddset(&all, signal);
    }
    std::signal(SIGCHLD, SIG_DFL);  // if inherited as ignored, exit codes would be lost
    sigaddset(&all, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &all, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    descriptor_ = Descriptor(::signalfd(-1, &all, SFD_NONBLOCK | SFD_CLOEXEC));
    if (descriptor_.number() < 0) fail("no signalfd");
  }
  int number() const { return descriptor_.number(); }
  /// The next pending signal; 0 if there is none.
  int next() const {
    signalfd_siginfo info{};
    return ::read(number(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                               : 0;
  }

 private:
  Descriptor descriptor_;
};

inline void log_line(const std::string& text) {
  write_all(STDERR_FILENO, "lockstep-run: " + text + "\n");
}

/// How often this machine's kernel has killed a process because memory ran out, in the whole system
/// or in a control group; 0 if unknown.
inline std::uint64_t out_of_memory_kills() {
  std::ifstream statistics("/proc/vmstat");
  std::string name;
  for (std::uint64_t number = 0; statistics >> name >> number;)
    if (name == "oom_kill") return number;
  return 0;
}

/// How a start of the job ended.
struct Outcome {
  int code = 0;                 ///< exit code of lockstep-run, unless the job is started again
  bool is_interrupted = false;  ///< by a signal to lockstep-run
  bool is_killed = false;       ///< the first failure: a worker killed by a signal
  std::string failure{};        ///< the first failure as a sentence; empty if there was none
};

/// Sends a sign of life to workers on other hosts every few seconds, in a separate thread, since a
/// terminal or a pager may hold up the launcher's output.
class SignsOfLife {
 public:
  static constexpr std::chrono::seconds interval{3};

  explicit SignsOfLife(const std::vector<Child>& children)
      : thread_([this, &children](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          while (!ended_.wait_for(lock, stop, interval, [&] { return stop.stop_requested(); }))
            for (const Child& child : children) child.send_sign_of_life();
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::jthread thread_;  // ends first
};

/// Supervises the workers.
///
///   all running --first failure--> time_to_report_ --> SIGTERM --time_to_end--> SIGKILL
///        |                         (survivors report and exit)
///        +--signal n: forwarded--> a second one: time_to_die --> SIGKILL
///
class Launcher {
 public:
  /// Starts the workers. With a folder, the output of each goes to a file of its own there. A `Job`
  /// has workers(), variables(rank), and host(rank): "" for a worker on this machine; for another one
  /// order(rank, command) is the command that starts it there.
  template <class Job>
  Launcher(const Command& command, const Job& job, const std::string& log_folder,
           std::chrono::milliseconds time_to_report = std::chrono::seconds(1))
      : time_to_report_(time_to_report) {
    try {
      for (std::size_t rank = 0; rank < job.workers(); ++rank) {
        Command own = command;
        for (auto& variable : job.variables(rank)) own.variables.push_back(std::move(variable));
        hosts_.push_back(job.host(rank));
        if constexpr (requires { job.order(rank, own); })
          if (!hosts_.back().empty()) own = job.order(rank, own);
        const std::string log = fmt::format("{}/rank-{}.log", log_folder, rank);
        children_.emplace_back(rank, own, log_folder.empty() ? "" : log);
        order_.watch(rank, children_.back());
      }
    } catch (...) {
      send(SIGKILL);
      throw;
    }
  }

  /// Waits until all workers have exited.
  Outcome wait(const Signals& signals) {
    std::optional<SignsOfLife> signs;
    if (std::any_of(children_.begin(), children_.end(), std::mem_fn(&Child::is_remote)))
      signs.emplace(children_);
    while (running()) {
      poll(signals);
      while (const int signal = signals.next())
        if (signal != SIGCHLD) interrupt(signal);
      reap();
      escalate();
    }
    for (Child& child : children_)
      for (Stream& stream : child.streams()) stream.finish();
    Outcome outcome{code_};
    if (code_ != 0) outcome.is_killed = WIFSIGNALED(children_[culprit_].status());
    if (code_ != 0) outcome.failure = failure_report();
    if (interrupted_ != 0) {
      outcome.code = 128 + interrupted_;
      outcome.is_interrupted = true;
    }
    return outcome;
  }

 private:
  using Clock = std::chrono::steady_clock;
  /// After a failure the other workers have time_to_report_ to report it and exit, then get SIGTERM,
  /// and SIGKILL after time_to_end.
  static constexpr std::chrono::seconds time_to_die{1}, time_to_end{5};
  /// Exit code of a worker that lost a peer. If the peer exits soon after, it is the first failure.
  static constexpr int peer_lost = 3;

  bool running() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.running(); });
  }
  void send(int signal) {
    for (Child& child : children_) child.send(signal);
  }

  void poll(const Signals& signals) {
    std::vector<pollfd> waited{{signals.number(), POLLIN, 0}};
    std::vector<Stream*> streams;
    for (Child& child : children_)
      for (Stream& stream : child.streams())
        if (stream.number() >= 0) {
          waited.push_back({stream.number(), POLLIN, 0});
          streams.push_back(&stream);
        }
    int timeout = -1;
    if (next_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next_ - Clock::now());
      timeout = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
    }
    if (::poll(waited.data(), waited.size(), timeout) <= 0) return;
    for (std::size_t i = 0; i < streams.size(); ++i)
      if (waited[i + 1].revents != 0) streams[i]->pump();
  }

  void interrupt(int signal) {
    send(signal);
    if (signal == SIGUSR1 || signal == SIGUSR2) return;
    if (interrupted_ != 0) {  // second signal: kill the workers that ignore it
      following_ = SIGKILL;
      next_ = Clock::now() + time_to_die;
    }
    if (interrupted_ == 0) interrupted_ = signal;
  }

  void reap() {
    std::vector<std::size_t> ended;
    for (std::size_t rank = 0; rank < children_.size(); ++rank)
      if (children_[rank].has_ended()) ended.push_back(rank);
    const bool no_failure_before = code_ == 0;
    std::size_t failures = 0;
    for (const std::size_t rank : order_.sorted(std::move(ended))) {
      children_[rank].collect();
      const int code = children_[rank].code();
      if (code == 0 || (interrupted_ != 0 && code == 128 + interrupted_)) continue;
      ++failures;
      record_failure(rank, code);
    }
    if (no_failure_before && failures > 1 && !order_.known()) in_doubt_ = true;
  }

  /// The first failure determines the exit code. A lost worker counts as earlier than the peers
  /// that lost it, even if they exited before.
  void record_failure(std::size_t rank, int code) {
    if (code_ == 0) {
      next_ = Clock::now() + time_to_report_;
      following_ = SIGTERM;
    } else if (code_ == peer_lost && code != peer_lost && following_ == SIGTERM) {
      before_ = culprit_;
    } else {
      return;
    }
    code_ = code;
    culprit_ = rank;
  }

  /// Names the worker that determined the exit code, and the order of failures if known.
  std::string failure_report() const {
    const int status = children_[culprit_].status();
    std::string report = fmt::format("rank {}", culprit_);
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      report += fmt::format(" was killed by signal {} ({})", signal, ::strsignal(signal));
      if (signal == SIGKILL && hosts_[culprit_].empty() &&
          out_of_memory_kills() > out_of_memory_kills_)
        report += " after memory ran out; give it more memory, or train with a smaller batch";
    } else {
      report +=
          fmt::format(" failed{}, with exit code {}", before_ || in_doubt_ ? "" : " first", code_);
    }
    constexpr int no_connection = 255;  // of ssh
    if (const std::string& host = hosts_[culprit_]; !host.empty())
      report += code_ == no_connection
                    ? fmt::format(
                          "; {} is not reachable by the remote shell, or it lost the "
                          "connection (ssh {} true)",
                          host, host)
                    : fmt::format(" on {}", host);
    if (before_ && !in_doubt_)
      report += fmt::format(
          "; before it rank {} exited with code {}, which means that it lost another worker",
          *before_, peer_lost);
    return report;
  }

  void escalate() {
    if (!next_ || Clock::now() < *next_) return;
    send(following_);
    following_ = SIGKILL;
    next_ = Clock::now() + time_to_end;
  }

  const std::chrono::milliseconds time_to_report_;
  const std::uint64_t out_of_memory_kills_ = out_of_memory_kills();  // before the job
  std::vector<Child> children_;
  std::vector<std::string> hosts_;  // by rank; "" for this machine
  EndOrder order_;
  int interrupted_ = 0, code_ = 0, following_ = 0;
  std::size_t culprit_ = 0;            ///< rank that determined the exit code
  std::optional<std::size_t> before_;  ///< rank that exited before, with peer_lost
  bool in_doubt_ = false;              ///< several failed, in unknown order
  std::optional<Clock::time_point> next_;
};

}  // namespace lockstep_run
