/// \file
/// A worker process of lockstep-run, or the one that connects to it, and its output (Linux). Invariants: the worker has its own
/// process group, so that Ctrl-C reaches it only once, through the launcher; it is killed when the
/// launcher dies; its output is forwarded in whole lines, prefixed with the rank.
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
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep_run {

/// Throws std::runtime_error with the text of errno, and a remedy if a limit was reached.
[[noreturn]] inline void fail(const std::string& what) {
  const int error = errno;
  std::string sentence = what + ": " + std::strerror(error);
  if (error == EAGAIN)
    sentence +=
        "; the limit on processes and threads is reached: start fewer workers, or raise it "
        "(ulimit -u; in a container pids.max of its cgroup)";
  if (error == EMFILE || error == ENFILE)
    sentence +=
        "; start fewer workers, raise the limit (ulimit -n), or use --log-dir, which needs "
        "fewer files";
  if (error == ENOMEM) sentence += "; start fewer workers, or end other programs";
  throw std::runtime_error(sentence);
}

/// Owner of a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }
  void close() { Descriptor() = std::move(*this); }

 private:
  int number_ = -1;
};

/// Writes all of `text`. Gives up on an error, since the reader is gone then.
inline void write_all(int to, std::string_view text) {
  while (!text.empty()) {
    const auto n = ::write(to, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// Forwards a worker's stdout or stderr to the launcher's, line by line.
class Stream {
 public:
  Stream(Descriptor from, int to, std::string prefix)
      : from_(std::move(from)), to_(to), prefix_(std::move(prefix)) {}

  int number() const { return from_.number(); }

  /// Forwards the available lines without blocking.
  void pump() {
    std::array<char, 65536> bytes;
    for (;;) {
      const auto n = ::read(from_.number(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0) {
        from_.close();
        break;
      }
      rest_.append(bytes.data(), static_cast<std::size_t>(n));
      pass_on();
    }
  }
  /// Forwards the rest after the worker exited; terminates an incomplete line.
  void finish() {
    if (number() >= 0) pump();
    if (!rest_.empty()) rest_ += '\n';
    pass_on();
    from_.close();
  }

 private:
  static constexpr std::size_t max_line_bytes = 1 << 20;

  void pass_on() {
    if (rest_.size() > max_line_bytes && rest_.find('\n') == std::string::npos) rest_ += '\n';
    std::string lines;
    std::size_t first = 0;
    for (auto end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', first)) {
      lines += prefix_;
      lines.append(rest_, first, end + 1 - first);
      first = end + 1;
    }
    rest_.erase(0, first);
    write_all(to_, lines);
  }

  Descriptor from_;
  int to_;
  std::string prefix_, rest_;
};

/// Command line and environment of a worker.
struct Command {
  std::string file;                    ///< the program, as a path
  std::vector<std::string> arguments;  ///< including argv[0]
  std::vector<std::pair<std::string, std::string>> variables;
  std::vector<std::string> unset;
  bool appends_to_logs = false;  ///< keep the output of an earlier start
  bool is_output_prefixed = true, are_errors_prefixed = true;  ///< with the rank
  /// The command starts a worker on another host, which gets this on its standard input, and after it
  /// lines "signal 15", and "alive" every few seconds.
  std::optional<std::string> order{};
};

/// A running worker.
class Child {
 public:
  /// Starts the worker. Its output goes to the file `log`, or through pipes if `log` is empty.
  Child(std::size_t rank, const Command& command, const std::string& log) {
    Descriptor out, error, out_end, error_end;
    if (log.empty()) {
      std::tie(out, out_end) = pipe();
      std::tie(error, error_end) = pipe();
    } else {
      const int mode = command.appends_to_logs ? 0 : O_TRUNC;
      out_end =
          Descriptor(::open(log.c_str(), O_WRONLY | O_CREAT | mode | O_APPEND | O_CLOEXEC, 0666));
      if (out_end.number() < 0) fail(log);
    }
    Descriptor order_end;
    if (command.order) std::tie(order_end, order_) = order_pipe(*command.order);
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
      const int nothing =
          order_end.number() >= 0 ? order_end.number() : ::open("/dev/null", O_RDONLY);
      ::dup2(nothing, STDIN_FILENO);
      ::dup2(out_end.number(), STDOUT_FILENO);
      ::dup2(log.empty() ? error_end.number() : out_end.number(), STDERR_FILENO);
      if (nothing > STDERR_FILENO) ::close(nothing);
      for (const std::string& name : command.unset) ::unsetenv(name.c_str());
      for (const auto& [name, value] : command.variables) ::setenv(name.c_str(), value.c_str(), 1);
      std::signal(SIGPIPE, SIG_DFL);
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
  /// Status as returned by waitpid. Precondition: !running().
  int status() const { return status_.value(); }
  /// Exit code; 128 + n if killed by signal n.
  int code() const {
    return WIFSIGNALED(status()) ? 128 + WTERMSIG(status()) : WEXITSTATUS(status());
  }

  /// Sends a signal to the worker's process group. On another host the agent does that; a second
  /// SIGKILL ends the connection to a host that does not answer.
  void send(int signal) {
    if (!running()) return;
    if (is_remote() && !(signal == SIGKILL && std::exchange(was_killed_, true)))
      write_all(order_.number(), fmt::format("signal {}\n", signal));
    else
      ::kill(-process_, signal);
  }
  bool is_remote() const { return order_.number() >= 0; }
  /// Reports to the agent of a worker on another host that the launcher lives. Callable from any thread.
  void send_sign_of_life() const {
    int unread = 0;  // signals must find room in the pipe
    if (!is_remote() || ::ioctl(order_.number(), FIONREAD, &unread) != 0 || unread > 0) return;
    write_all(order_.number(), "alive\n");
  }
  /// Whether the worker has exited but was not collected yet.
  bool has_ended() const {
    siginfo_t info{};
    return running() &&
           ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == process_;
  }
  /// Reaps an exited worker and kills what is left of its process group.
  void collect() {
    int status = 0;
    if (::waitpid(process_, &status, 0) != process_) fail("waitpid failed for a worker");
    status_ = status;
    ::kill(-process_, SIGKILL);
  }

 private:
  static std::pair<Descriptor, Descriptor> pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("cannot create a pipe");
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return {Descriptor(ends[0]), Descriptor(ends[1])};
  }

  /// A pipe that holds `order`, and its writing end, which never blocks.
  static std::pair<Descriptor, Descriptor> order_pipe(const std::string& order) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("cannot create a pipe");
    Descriptor from(ends[0]), to(ends[1]);
    constexpr std::size_t spare = 4096;  // for signals
    ::fcntl(ends[1], F_SETPIPE_SZ, static_cast<int>(order.size() + spare));
    ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
    if (::write(ends[1], order.data(), order.size()) != static_cast<ssize_t>(order.size()))
      fail(
          fmt::format("an order of {} bytes does not fit a pipe; pass fewer variables or arguments",
                      order.size()));
    return {std::move(from), std::move(to)};
  }

  pid_t process_ = -1;
  std::optional<int> status_;
  std::vector<Stream> streams_;
  Descriptor order_;  // of a worker on another host
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
