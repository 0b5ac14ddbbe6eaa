// lockstep-run: starts the workers of a job on this machine and stops all of them if one fails.
//
// Exit code: 0 if all workers exited with 0; otherwise the code of the first failure, which is
// 128 + n for a worker killed by signal n; 128 + n after signal n to lockstep-run itself (130 after
// Ctrl-C); 2 for an invalid command line, before any worker is started.
#include <poll.h>
#include <sys/signalfd.h>

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/core/version.hpp>

#include "run_child.hpp"
#include "run_job.hpp"

namespace lockstep_run {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Arguments {
  std::size_t workers = 0;
  std::string log_folder;
  std::vector<std::string> command;
};

/// \throws CLI::ParseError, also for --help and --version.
Arguments parse(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "lockstep-run -n N PROGRAM ARGS...: starts PROGRAM N times on this machine, as the workers "
      "of one job, and stops all of them if one fails.",
      "lockstep-run");
  app.add_option("-n,--workers", arguments.workers, "workers to start")
      ->required()
      ->check(CLI::Range(1, 1024));
  app.add_option(
      "--log-dir", arguments.log_folder,
      "write each worker's output to DIR/rank-N.log; default: to stdout and stderr, each "
      "line prefixed with the rank");
  app.set_version_flag("--version",
                       fmt::format("lockstep {}\nfmt {}.{}.{}", LOCKSTEP_VERSION,
                                   FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100),
                       "print the versions and exit");
  app.prefix_command();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    throw;
  } catch (const CLI::CallForVersion& version) {
    std::fputs(fmt::format("{}\n", version.what()).c_str(), stdout);
    throw;
  }
  arguments.command = app.remaining();
  if (!arguments.command.empty() && arguments.command.front() == "--")
    arguments.command.erase(arguments.command.begin());
  if (arguments.command.empty())
    throw CLI::ValidationError("PROGRAM", "missing; name the program that the workers run");
  if (arguments.command.front().starts_with('-'))
    throw CLI::ValidationError(arguments.command.front(), "lockstep-run has no such option");
  return arguments;
}

/// Path of the program: found as by the shell, or in the folder of lockstep-run.
std::string find_program(const std::string& name) {
  std::vector<fs::path> places;
  if (name.find('/') != std::string::npos) {
    places.emplace_back(name);
  } else {
    const char* path = std::getenv("PATH");
    std::istringstream folders(path ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');)
      places.push_back(fs::path(folder.empty() ? "." : folder) / name);
    std::error_code error;
    places.push_back(fs::read_symlink("/proc/self/exe", error).parent_path() / name);
  }
  for (const fs::path& place : places) {
    std::error_code unreadable;  // a folder in PATH may be unreadable
    if (fs::is_regular_file(place, unreadable) && ::access(place.c_str(), X_OK) == 0)
      return place.string();
  }
  throw CLI::ValidationError(name, "not found, or not an executable program");
}

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

void log_line(const std::string& text) { write_all(STDERR_FILENO, "lockstep-run: " + text + "\n"); }

/// Supervises the workers.
///
///   all running --first failure--> time_to_report --> SIGTERM --time_to_end--> SIGKILL
///        |                         (survivors report and exit)
///        +--signal n: forwarded--> a second one: time_to_report --> SIGKILL
///
class Launcher {
 public:
  Launcher(const Arguments& arguments, const Command& command, const LocalJob& job) {
    try {
      for (std::size_t rank = 0; rank < arguments.workers; ++rank) {
        Command own = command;
        own.variables = job.variables(rank);
        const std::string log = fmt::format("rank-{}.log", rank);
        children_.emplace_back(
            rank, own,
            arguments.log_folder.empty() ? "" : (fs::path(arguments.log_folder) / log).string());
        order_.watch(rank, children_.back());
      }
    } catch (...) {
      send(SIGKILL);
      throw;
    }
  }

  /// Waits until all workers have exited. \returns the exit code.
  int wait(const Signals& signals) {
    while (running()) {
      poll(signals);
      while (const int signal = signals.next())
        if (signal != SIGCHLD) interrupt(signal);
      reap();
      escalate();
    }
    for (Child& child : children_)
      for (Stream& stream : child.streams()) stream.finish();
    if (code_ != 0) log_line(failure_report());
    return interrupted_ != 0 ? 128 + interrupted_ : code_;
  }

 private:
  /// After a failure the other workers have time_to_report to report it and exit, then get SIGTERM,
  /// and SIGKILL after time_to_end.
  static constexpr std::chrono::seconds time_to_report{1}, time_to_end{5};
  /// Exit code of a worker that lost a peer. If the peer exits soon after, it is the first failure.
  static constexpr int peer_lost = 3;

  bool running() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.running(); });
  }
  void send(int signal) const {
    for (const Child& child : children_) child.send(signal);
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
      next_ = Clock::now() + time_to_report;
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
      next_ = Clock::now() + time_to_report;
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
    const std::string code = std::to_string(code_);
    std::string report = fmt::format("rank {}", culprit_);
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      report += fmt::format(" was killed by signal {} ({}), which gives the exit code {}", signal,
                            ::strsignal(signal), code);
    } else {
      report +=
          before_ || in_doubt_ ? " failed, with exit code " : " failed first, with exit code ";
      report += code;
    }
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

  std::vector<Child> children_;
  EndOrder order_;
  int interrupted_ = 0, code_ = 0, following_ = 0;
  std::size_t culprit_ = 0;            ///< rank that determined the exit code
  std::optional<std::size_t> before_;  ///< rank that exited before, with peer_lost
  bool in_doubt_ = false;              ///< several failed, in unknown order
  std::optional<Clock::time_point> next_;
};

int run(int argc, char** argv) {
  Arguments arguments;
  Command command;
  try {
    arguments = parse(argc, argv);
    command = {find_program(arguments.command.front()),
               arguments.command,
               {},
               LocalJob::foreign_variables()};
  } catch (const CLI::Success&) {
    return 0;
  } catch (const CLI::ParseError& error) {
    log_line(error.what());
    return 2;
  }
  try {
    if (!arguments.log_folder.empty()) fs::create_directories(arguments.log_folder);
    const Signals signals;
    const LocalJob job(arguments.workers);
    return Launcher(arguments, command, job).wait(signals);
  } catch (const std::exception& error) {
    log_line(error.what());
    return 1;
  }
}

}  // namespace
}  // namespace lockstep_run

int main(int argc, char** argv) { return lockstep_run::run(argc, argv); }
