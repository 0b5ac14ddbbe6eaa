/// \file
/// Supervises the workers of one start of a job (Linux). Invariants: no worker outlives the launcher;
/// the first failure determines the exit code. run_elastic.hpp is for jobs that outlive a worker.
#pragma once

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/core/process/stop_signals.hpp>

#include "run_child.hpp"
#include "run_job.hpp"
#include "run_output.hpp"

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
    for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_IGN);
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
  Output::of(STDERR_FILENO).write("lockstep-run: " + text + "\n");
}

/// Whether a signal to lockstep-run ends the job, after the workers have received it too: SIGUSR1
/// and SIGUSR2 only if the workers handle them so.
inline bool ends_job(int signal) {
  if (signal != SIGUSR1 && signal != SIGUSR2) return signal != SIGCHLD;
  static const std::vector<int> handled =
      lockstep::detail::handled_signals(std::getenv("LOCKSTEP_STOP_SIGNALS"));
  return std::find(handled.begin(), handled.end(), signal) != handled.end();
}

/// Waits until all output is written, at most until a signal comes; a second if one has come
/// already.
/// \returns false if nobody reads the rest.
inline bool wait_for_output(const Signals& signals) {
  const bool has_come = Output::is_dropping_excess();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (!Output::are_written()) {
    std::array<pollfd, 2> waited{
        {{signals.number(), POLLIN, 0}, {Output::changes().number(), POLLIN, 0}}};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (has_come && left.count() <= 0) return false;
    ::poll(waited.data(), waited.size(), has_come ? static_cast<int>(left.count()) : -1);
    Output::clear_changes();
    while (const int signal = signals.next())
      if (ends_job(signal)) return false;
  }
  return true;
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

  /// While the result lives, no child is used by that thread.
  std::unique_lock<std::mutex> pause() { return std::unique_lock(mutex_); }

 private:
  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::jthread thread_;  // ends first
};

/// The workers of a job as processes, and how they are ended.
///
///     end() --> SIGTERM --time_to_end--> SIGKILL
///     signal n: forwarded --> a second one: time_to_die --> SIGKILL
///
/// Connections to other hosts are limited: an sshd refuses some of more than ten that have not
/// authenticated yet (MaxStartups).
///
///     planned --fewer than most_unanswered to the host--> started --> the remote shell reads its order
///        ^                                                  |
///        +---- 255 before that, at most most_attempts ------+
///
class Workers {
 public:
  using Clock = std::chrono::steady_clock;

 protected:
  /// Starts the workers. With a folder, the output of each goes to a file of its own there. A `Job`
  /// has workers(), variables(rank), and host(rank): "" for a worker on this machine; for another one
  /// order(rank, command) is the command that starts it there. `job` must outlive this object.
  template <class Job>
  Workers(const Command& command, const Job& job, const std::string& log_folder)
      : make_([&job, log_folder](std::size_t rank, Command own) {
          for (auto& variable : job.variables(rank)) own.variables.push_back(std::move(variable));
          if constexpr (requires { job.order(rank, own); })
            if (!job.host(rank).empty()) own = job.order(rank, own);
          const std::string log = fmt::format("{}/rank-{}.log", log_folder, rank);
          return Child(rank, own, log_folder.empty() ? "" : log);
        }) {
    try {
      for (std::size_t rank = 0; rank < job.workers(); ++rank) {
        hosts_.push_back(job.host(rank));
        children_.emplace_back();
      }
      for (std::size_t rank = 0; rank < job.workers(); ++rank) plan(rank, command);
      start_planned();
    } catch (...) {
      send(SIGKILL);
      throw;
    }
    if (std::any_of(hosts_.begin(), hosts_.end(), [](const auto& host) { return !host.empty(); }))
      signs_.emplace(children_);
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers() = default;

  /// Starts a worker that has ended, in the same place of the job.
  void start_again(std::size_t rank, const Command& command) {
    if (hosts_[rank].empty()) return start(rank, command);
    replace(rank, Child());
    plan(rank, command);
  }

  std::size_t count() const { return children_.size(); }
  const Child& child(std::size_t rank) const { return children_[rank]; }
  bool running() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.running(); });
  }
  void send(int signal) {
    for (Child& child : children_) child.send(signal);
  }

  /// Forwards output and signals, until there is something to do: a worker has ended, a signal came,
  /// or it is `until`, or time for the next step against workers that do not end.
  void poll(const Signals& signals, std::optional<Clock::time_point> until = {}) {
    try {
      start_planned();
    } catch (...) {
      send(SIGKILL);
      throw;
    }
    std::vector<pollfd> waited{{signals.number(), POLLIN, 0},
                               {Output::changes().number(), POLLIN, 0}};
    std::vector<Stream*> streams;
    for (Child& child : children_)
      for (Stream& stream : child.streams())
        if (stream.is_wanted()) {
          waited.push_back({stream.number(), POLLIN, 0});
          streams.push_back(&stream);
        }
    int timeout = -1;
    if (next_ && (!until || *next_ < *until)) until = next_;
    if (const auto start = next_connection(); start && (!until || *start < *until)) until = start;
    if (until) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now());
      timeout = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
    }
    const bool is_ready = ::poll(waited.data(), waited.size(), timeout) > 0;
    Output::clear_changes();
    while (const int signal = signals.next())
      if (signal != SIGCHLD) interrupt(signal);
    for (std::size_t i = 0; is_ready && i < streams.size(); ++i)
      if (waited[i + 2].revents != 0) streams[i]->pump();
  }

  /// Collects the workers that have ended. \returns their ranks in order of their ends, if it is known
  std::vector<std::size_t> collect() {
    std::vector<std::size_t> ended;
    for (std::size_t rank = 0; rank < children_.size(); ++rank)
      if (children_[rank].has_ended()) ended.push_back(rank);
    ended = order_.sorted(std::move(ended));
    for (const std::size_t rank : ended) children_[rank].collect();
    std::erase_if(ended, [this](std::size_t rank) { return connects_again(rank); });
    collect_others();
    return ended;
  }
  bool is_order_known() const { return order_.known(); }

  /// Forwards the rest of a worker's output.
  void finish(std::size_t rank) {
    for (Stream& stream : children_[rank].streams()) stream.finish();
  }

  /// Ends all workers, after the time in which they may report and exit.
  void end(Clock::duration time_to_report) {
    next_ = Clock::now() + time_to_report;
    following_ = SIGTERM;
  }
  /// Whether that time has not passed yet.
  bool is_time_to_report() const { return following_ == SIGTERM; }
  void escalate() {
    if (!next_ || Clock::now() < *next_) return;
    send(following_);
    cancel_planned(following_);
    following_ = SIGKILL;
    next_ = Clock::now() + time_to_end;
  }
  /// The signal to lockstep-run that ends the job; 0 if none came.
  int interrupted() const { return interrupted_; }

  /// "rank 2 was killed by signal 9 (Killed)", or "rank 2 VERB, with exit code 7"; with its host.
  std::string end_of(std::size_t rank, std::string_view verb) const {
    const int status = children_[rank].status();
    std::string report = fmt::format("rank {}", rank);
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      report += fmt::format(" was killed by signal {} ({})", signal, ::strsignal(signal));
      if (signal == SIGKILL && hosts_[rank].empty() && out_of_memory_kills() > out_of_memory_kills_)
        report += " after memory ran out; give it more memory, or train with a smaller batch";
    } else {
      report += fmt::format(" {}, with exit code {}", verb, children_[rank].code());
    }
    if (const std::string& host = hosts_[rank]; !host.empty())
      report += children_[rank].code() == no_connection
                    ? fmt::format(
                          "; {} is not reachable by the remote shell, or it lost the "
                          "connection (ssh {} true)",
                          host, host)
                    : fmt::format(" on {}", host);
    return report;
  }

 private:
  static constexpr std::chrono::seconds time_to_die{1}, time_to_end{5};
  static constexpr std::size_t most_unanswered = 8;             ///< connections to a host
  static constexpr int most_attempts = 3, no_connection = 255;  ///< exit code of ssh
  static constexpr std::chrono::duration<double> time_to_connect{0.3};
  /// How often the launcher checks whether hosts have answered.
  static constexpr std::chrono::milliseconds time_to_check{20};

  /// A start to be made.
  struct Start {
    std::size_t rank;
    Command command;
    Clock::time_point at = Clock::now();  ///< not before
  };

  void plan(std::size_t rank, const Command& command) {
    planned_.push_back({rank, command});
    attempts_[rank] = 0;
  }
  void cancel_planned(int signal) {
    for (Child& child : children_) child.cancel(signal);
  }
  void start(std::size_t rank, const Command& command) {
    replace(rank, make_(rank, command));
    order_.watch(rank, children_[rank]);
  }
  void replace(std::size_t rank, Child child) {
    const auto pause = signs_ ? signs_->pause() : std::unique_lock<std::mutex>();
    children_[rank] = std::move(child);
  }
  bool is_ending() const { return interrupted_ != 0 || next_.has_value(); }

  /// Starts planned workers, as far as their hosts have answered.
  void start_planned() {
    if (planned_.empty() || is_ending()) return;
    std::map<std::string, std::size_t> unanswered;
    for (std::size_t rank = 0; rank < children_.size(); ++rank)
      if (const Child& child = children_[rank];
          child.is_remote() && child.running() && !child.has_answered())
        ++unanswered[hosts_[rank]];
    std::vector<Start> later;
    for (Start& start : std::exchange(planned_, {})) {
      const std::string& host = hosts_[start.rank];
      if (Clock::now() < start.at || (!host.empty() && unanswered[host] == most_unanswered)) {
        later.push_back(std::move(start));
        continue;
      }
      if (!host.empty()) ++unanswered[host];
      ++attempts_[start.rank];
      this->start(start.rank, start.command);
      if (!host.empty()) commands_[start.rank] = std::move(start.command);
    }
    planned_ = std::move(later);
  }
  /// When to call start_planned again; nullopt if there is nothing to start.
  std::optional<Clock::time_point> next_connection() const {
    if (planned_.empty() || is_ending()) return std::nullopt;
    return Clock::now() + time_to_check;
  }
  /// Plans another connection for a worker whose remote shell has ended before it read the order.
  bool connects_again(std::size_t rank) {
    const Child& child = children_[rank];
    if (!child.is_remote() || child.code() != no_connection || child.has_answered() ||
        is_ending() || attempts_[rank] >= most_attempts)
      return false;
    finish(rank);
    const auto delay = time_to_connect * attempts_[rank] * part_(random_);
    log_line(fmt::format("rank {}: {} did not accept the connection; attempt {} of {}", rank,
                         hosts_[rank], attempts_[rank] + 1, most_attempts));
    planned_.push_back(
        {rank, commands_[rank], Clock::now() + std::chrono::ceil<Clock::duration>(delay)});
    replace(rank, Child());
    return true;
  }
  /// Reaps processes that lockstep-run has inherited, as process 1 of a container.
  void collect_others() const {
    for (;;) {
      siginfo_t info{};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
      for (const Child& child : children_)
        if (child.running() && child.process() == info.si_pid) return;
      ::waitpid(info.si_pid, nullptr, 0);
    }
  }

  void interrupt(int signal) {
    send(signal);
    if (!ends_job(signal)) return;
    cancel_planned(signal);
    Output::drop_excess();
    if (interrupted_ != 0) {  // second signal: kill the workers that ignore it
      following_ = SIGKILL;
      next_ = Clock::now() + time_to_die;
    }
    if (interrupted_ == 0) interrupted_ = signal;
  }

  const std::function<Child(std::size_t, Command)> make_;
  std::vector<Child> children_;
  std::vector<std::string> hosts_;  // by rank; "" for this machine
  std::vector<Start> planned_;
  std::map<std::size_t, Command> commands_;  // of workers on other hosts, by rank
  std::map<std::size_t, int> attempts_;      // by rank
  const std::uint64_t out_of_memory_kills_ = out_of_memory_kills();  // before the job
  EndOrder order_;
  int interrupted_ = 0, following_ = 0;
  std::optional<Clock::time_point> next_;
  std::mt19937 random_{std::random_device{}()};
  std::uniform_real_distribution<double> part_{1, 2};  // launchers that failed together part
  std::optional<SignsOfLife> signs_;                   // ends before the children
};

/// Exit code of a worker that lost a peer. If the peer exits soon after, it is the first failure.
constexpr int peer_lost = 3;

/// Supervises a job that ends with its first failure.
///
///     all running --first failure--> time_to_report_ --> end of the others
///                                   (survivors report and exit)
class Launcher : private Workers {
 public:
  template <class Job>
  Launcher(const Command& command, const Job& job, const std::string& log_folder,
           std::chrono::milliseconds time_to_report = std::chrono::seconds(1))
      : Workers(command, job, log_folder), time_to_report_(time_to_report) {}

  /// Waits until all workers have exited.
  Outcome wait(const Signals& signals) {
    while (running()) {
      poll(signals);
      reap();
      escalate();
    }
    for (std::size_t rank = 0; rank < count(); ++rank) finish(rank);
    Outcome outcome{code_};
    if (code_ != 0) outcome.is_killed = WIFSIGNALED(child(culprit_).status());
    if (code_ != 0) outcome.failure = failure_report();
    if (interrupted() != 0) {
      outcome.code = 128 + interrupted();
      outcome.is_interrupted = true;
    }
    return outcome;
  }

 private:
  void reap() {
    const bool no_failure_before = code_ == 0;
    std::size_t failures = 0;
    for (const std::size_t rank : collect()) {
      const int code = child(rank).code();
      if (code == 0 || (interrupted() != 0 && code == 128 + interrupted())) continue;
      ++failures;
      record_failure(rank, code);
    }
    if (no_failure_before && failures > 1 && !is_order_known()) in_doubt_ = true;
  }

  /// The first failure determines the exit code. A lost worker counts as earlier than the peers
  /// that lost it, even if they exited before.
  void record_failure(std::size_t rank, int code) {
    if (code_ == 0)
      end(time_to_report_);
    else if (code_ == peer_lost && code != peer_lost && is_time_to_report())
      before_ = culprit_;
    else
      return;
    code_ = code;
    culprit_ = rank;
  }

  /// Names the worker that determined the exit code, and the order of failures if known.
  std::string failure_report() const {
    std::string report = end_of(culprit_, before_ || in_doubt_ ? "failed" : "failed first");
    if (before_ && !in_doubt_)
      report += fmt::format(
          "; before it rank {} exited with code {}, which means that it lost another worker",
          *before_, peer_lost);
    return report;
  }

  const std::chrono::milliseconds time_to_report_;
  int code_ = 0;
  std::size_t culprit_ = 0;            ///< rank that determined the exit code
  std::optional<std::size_t> before_;  ///< rank that exited before, with peer_lost
  bool in_doubt_ = false;              ///< several failed, in unknown order
};

}  // namespace lockstep_run
