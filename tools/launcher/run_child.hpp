/// \file
/// A worker process of lockstep-run, or the one that connects to it, and its output (Linux). Invariants: the worker has its own
/// process group, so that Ctrl-C reaches it only once, through the launcher; it is killed when the
/// launcher dies.
#pragma once

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "run_descriptor.hpp"
#include "run_output.hpp"
#include "run_secret.hpp"

namespace lockstep_run {

/// Command line and environment of a worker.
struct Command {
  std::string file;                    ///< the program, as a path
  std::vector<std::string> arguments;  ///< including argv[0]
  std::vector<std::pair<std::string, std::string>> variables;
  std::vector<std::string> unset;
  bool appends_to_logs = false;  ///< keep the output of an earlier start
  bool is_output_prefixed = true, are_errors_prefixed = true;  ///< with the rank
  /// The command starts a worker on another host, which gets this on its standard input, then the
  /// secret and "go", and after it lines "signal 15", and "alive" every few seconds.
  std::optional<std::string> order{};
  std::shared_ptr<const SecretText> secret{};  ///< of an order
};

/// A worker: planned, running, or ended.
class Child {
 public:
  /// A worker that is started later.
  Child() = default;
  /// Starts the worker. Its output goes to the file `log`, or through pipes if `log` is empty.
  Child(std::size_t rank, const Command& command, const std::string& log) {
    Descriptor out, error, out_end, error_end;
    if (log.empty()) {
      std::tie(out, out_end) = pipe();
      std::tie(error, error_end) = pipe();
    } else {
      const int mode = command.appends_to_logs ? 0 : O_TRUNC;
      // A folder that comes from elsewhere may have a link, or a FIFO, at which open would wait.
      const int how = O_WRONLY | O_CREAT | mode | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
      out_end = Descriptor(::open(log.c_str(), how, 0666));
      if (out_end.number() < 0) fail(log);
      ::fcntl(out_end.number(), F_SETFL, O_APPEND);
    }
    Descriptor order;
    if (command.order) std::tie(order, order_) = order_pipe(command);
    std::vector<char*> arguments;
    for (const std::string& a : command.arguments)
      arguments.push_back(const_cast<char*>(a.c_str()));
    arguments.push_back(nullptr);
    const pid_t launcher = ::getpid();
    process_ = ::fork();
    if (process_ < 0) fail(fmt::format("cannot start rank {}", rank));
    if (process_ == 0) {
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != launcher) ::_exit(127);
      const int nothing = order.number() >= 0 ? order.number() : ::open("/dev/null", O_RDONLY);
      ::dup2(nothing, STDIN_FILENO);
      ::dup2(out_end.number(), STDOUT_FILENO);
      ::dup2(log.empty() ? error_end.number() : out_end.number(), STDERR_FILENO);
      if (nothing > STDERR_FILENO) ::close(nothing);
      for (const std::string& name : command.unset) ::unsetenv(name.c_str());
      for (const auto& [name, value] : command.variables) ::setenv(name.c_str(), value.c_str(), 1);
      for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_DFL);
      sigset_t none;
      sigemptyset(&none);
      ::sigprocmask(SIG_SETMASK, &none, nullptr);
      ::execv(command.file.c_str(), arguments.data());
      const std::string message = command.file + ": " + std::strerror(errno) + "\n";
      write_all(STDERR_FILENO, message);
      ::_exit(127);
    }
    ::setpgid(process_, process_);
    const std::string prefix = fmt::format("[{}] ", rank);
    if (log.empty()) {
      streams_.emplace_back(std::move(out), STDOUT_FILENO,
                            command.is_output_prefixed ? prefix : "");
      streams_.emplace_back(std::move(error), STDERR_FILENO,
                            command.are_errors_prefixed ? prefix : "");
    }
  }

  std::vector<Stream>& streams() { return streams_; }
  pid_t process() const { return process_; }
  bool running() const { return !status_; }
  bool is_planned() const { return process_ < 0 && running(); }
  /// A planned worker counts as ended by the signal.
  void cancel(int signal) {
    if (is_planned()) status_ = signal;
  }
  /// Status as returned by waitpid. Precondition: !running().
  int status() const { return status_.value(); }
  /// Exit code; 128 + n if killed by signal n.
  int code() const {
    return WIFSIGNALED(status()) ? 128 + WTERMSIG(status()) : WEXITSTATUS(status());
  }

  /// Sends a signal to the worker's process group. On another host the agent does that; a second
  /// SIGKILL ends the connection to a host that does not answer.
  void send(int signal) {
    if (!running() || is_planned()) return;
    if (is_remote() && !(signal == SIGKILL && std::exchange(was_killed_, true)))
      write_all(order_.number(), fmt::format("signal {}\n", signal));
    else
      ::kill(-process_, signal);
  }
  bool is_remote() const { return order_.number() >= 0; }
  /// Whether the connection to another host stands: only then its remote shell reads the order.
  bool has_answered() const {
    int unread = 0;
    return ::ioctl(order_.number(), FIONREAD, &unread) != 0 ||
           static_cast<std::size_t>(unread) < order_size_;
  }
  /// Reports to the agent of a worker on another host that the launcher lives. Callable from any thread.
  void send_sign_of_life() const {
    int unread = 0;  // signals must find room in the pipe
    if (!is_remote() || ::ioctl(order_.number(), FIONREAD, &unread) != 0 || unread > 0) return;
    write_all(order_.number(), "alive\n");
  }
  /// Whether the worker has exited but was not collected yet.
  bool has_ended() const {
    siginfo_t info{};
    return process_ >= 0 && running() &&
           ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == process_;
  }
  /// Kills what is left of an exited worker's process group and reaps the worker. In this order:
  /// until the worker is reaped, no other process or group can have its number.
  void collect() {
    ::kill(-process_, SIGKILL);
    int status = 0;
    if (::waitpid(process_, &status, 0) != process_) fail("waitpid failed for a worker");
    status_ = status;
  }

 private:
  static std::pair<Descriptor, Descriptor> pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("cannot create a pipe");
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return {Descriptor(ends[0]), Descriptor(ends[1])};
  }

  /// A pipe that holds the order, and its writing end, which never blocks.
  std::pair<Descriptor, Descriptor> order_pipe(const Command& command) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("cannot create a pipe");
    Descriptor from(ends[0]), to(ends[1]);
    constexpr std::size_t spare = 4096;  // for signals
    const std::string_view secret = command.secret ? command.secret->text() : "";
    const std::string head = fmt::format("{}secret {}\n", *command.order, secret.size());
    order_size_ = head.size() + secret.size() + std::string_view(order_end).size();
    ::fcntl(ends[1], F_SETPIPE_SZ, static_cast<int>(order_size_ + spare));
    ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
    for (const std::string_view part :
         {std::string_view(head), secret, std::string_view(order_end)})
      if (::write(ends[1], part.data(), part.size()) != static_cast<ssize_t>(part.size()))
        fail(fmt::format(
            "an order of {} bytes does not fit a pipe; pass fewer variables or arguments",
            order_size_));
    return {std::move(from), std::move(to)};
  }

  static constexpr const char* order_end = "\ngo\n";

  pid_t process_ = -1;
  std::optional<int> status_;
  std::vector<Stream> streams_;
  Descriptor order_;            // of a worker on another host
  std::size_t order_size_ = 0;  // bytes
  bool was_killed_ = false;
};

/// Determines the order in which workers exited, even between two polls, from the order of epoll
/// events of their pidfds. Unknown on systems without pidfds.
class EndOrder {
 public:
  EndOrder() : queue_(::epoll_create1(EPOLL_CLOEXEC)) {}

  /// Call it right after each start of a worker: one that already exited counts as exiting now.
  void watch(std::size_t rank, const Child& child) {
    std::erase(reported_, rank);
    const auto opened = ::syscall(SYS_pidfd_open, child.process(), 0);
    known_ = known_ && opened >= 0;
    if (!known_) return;
    processes_[rank] = Descriptor(static_cast<int>(opened));  // closing the one before removes it
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    event.data.u64 = rank;
    known_ = ::epoll_ctl(queue_.number(), EPOLL_CTL_ADD, static_cast<int>(opened), &event) == 0;
  }

  bool known() const { return known_; }

  /// Sorts exited ranks by time of exit; leaves them in order of rank if that is unknown.
  std::vector<std::size_t> sorted(std::vector<std::size_t> ended) {
    std::vector<epoll_event> events(processes_.size());
    const int n = known_ && !events.empty() ? ::epoll_wait(queue_.number(), events.data(),
                                                           static_cast<int>(events.size()), 0)
                                            : 0;
    for (int i = 0; i < n; ++i)
      reported_.push_back(static_cast<std::size_t>(events[static_cast<std::size_t>(i)].data.u64));
    const auto place = [this](std::size_t rank) {
      return std::find(reported_.begin(), reported_.end(), rank);
    };
    std::stable_sort(ended.begin(), ended.end(),
                     [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
    return ended;
  }

 private:
  Descriptor queue_;
  std::map<std::size_t, Descriptor> processes_;  // pidfds, by rank; they are close-on-exec
  std::vector<std::size_t> reported_;
  bool known_ = true;
};

}  // namespace lockstep_run
