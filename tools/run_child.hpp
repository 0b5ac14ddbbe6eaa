/// \file
/// One worker of lockstep-run, and what it writes (Linux). Invariants: it lies in a process group
/// of its own, so that a Ctrl-C of the terminal reaches it once, from the launcher; it dies with
/// the launcher; each line of it comes out whole, behind its rank.
#pragma once

#include <fcntl.h>
#include <sys/epoll.h>
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
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep_run {

/// \throws std::runtime_error with the system's reason, and what to do if a limit is reached.
[[noreturn]] inline void fail(const std::string& what) {
  const int error = errno;
  std::string sentence = what + ": " + std::strerror(error);
  if (error == EAGAIN)
    sentence +=
        ", for the limit on processes and threads is reached; start fewer workers, or raise it "
        "(ulimit -u; in a container pids.max of its cgroup)";
  if (error == EMFILE || error == ENFILE)
    sentence +=
        "; start fewer workers, raise the limit (ulimit -n), or use --log-dir, which needs "
        "fewer files";
  if (error == ENOMEM) sentence += "; start fewer workers, or end other programs";
  throw std::runtime_error(sentence);
}

/// A descriptor that is closed with its owner.
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

/// Writes all of `text`; what cannot be written is lost, as the reader is.
inline void write_all(int to, std::string_view text) {
  while (!text.empty()) {
    const auto n = ::write(to, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// A worker's stdout or stderr, which goes on to the launcher's line by line.
class Stream {
 public:
  Stream(Descriptor from, int to, std::string prefix)
      : from_(std::move(from)), to_(to), prefix_(std::move(prefix)) {}

  int number() const { return from_.number(); }

  /// Passes on what is there. Does not wait.
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
  /// Nothing more will come: a line without an end gets one.
  void finish() {
    if (number() >= 0) pump();
    if (!rest_.empty()) rest_ += '\n';
    pass_on();
    from_.close();
  }

 private:
  static constexpr std::size_t longest_line = 1 << 20;

  void pass_on() {
    if (rest_.size() > longest_line && rest_.find('\n') == std::string::npos) rest_ += '\n';
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

/// What a worker is started with.
struct Command {
  std::string file;                    ///< the program, as a path
  std::vector<std::string> arguments;  ///< the first is the program's name
  std::vector<std::pair<std::string, std::string>> variables;
  std::vector<std::string> unset;
};

/// A running worker.
class Child {
 public:
  /// Starts it. Its output goes to `log`, or through pipes if that is empty.
  Child(std::size_t rank, const Command& command, const std::string& log) {
    Descriptor out, error, out_end, error_end;
    if (log.empty()) {
      std::tie(out, out_end) = pipe();
      std::tie(error, error_end) = pipe();
    } else {
      out_end = Descriptor(
          ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
      if (out_end.number() < 0) fail(log);
    }
    std::vector<char*> arguments;
    for (const std::string& a : command.arguments)
      arguments.push_back(const_cast<char*>(a.c_str()));
    arguments.push_back(nullptr);
    const pid_t launcher = ::getpid();
    process_ = ::fork();
    if (process_ < 0) fail(fmt::format("rank {} cannot be started", rank));
    if (process_ == 0) {
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != launcher) ::_exit(127);
      const int nothing = ::open("/dev/null", O_RDONLY);
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
      const std::string why = command.file + ": " + std::strerror(errno) + "\n";
      write_all(STDERR_FILENO, why);
      ::_exit(127);
    }
    ::setpgid(process_, process_);
    const std::string prefix = fmt::format("[{}] ", rank);
    if (log.empty()) {
      streams_.emplace_back(std::move(out), STDOUT_FILENO, prefix);
      streams_.emplace_back(std::move(error), STDERR_FILENO, prefix);
    }
  }

  std::vector<Stream>& streams() { return streams_; }
  pid_t process() const { return process_; }
  bool running() const { return !status_; }
  /// As waitpid has it; only when it runs no more.
  int status() const { return status_.value(); }
  /// 128 + n if it was killed by signal n.
  int code() const {
    return WIFSIGNALED(status()) ? 128 + WTERMSIG(status()) : WEXITSTATUS(status());
  }

  /// To the worker and what it started.
  void send(int signal) const {
    if (running()) ::kill(-process_, signal);
  }
  /// Whether it has ended and was not collected yet.
  bool has_ended() const {
    siginfo_t info{};
    return running() &&
           ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == process_;
  }
  /// Takes the status of one that has ended.
  void collect() {
    int status = 0;
    if (::waitpid(process_, &status, 0) != process_) fail("a worker cannot be waited for");
    status_ = status;
    ::kill(-process_, SIGKILL);  // what it has left behind
  }

 private:
  static std::pair<Descriptor, Descriptor> pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("no pipe");
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return {Descriptor(ends[0]), Descriptor(ends[1])};
  }

  pid_t process_ = -1;
  std::optional<int> status_;
  std::vector<Stream> streams_;
};

/// Tells in which order workers ended, also of those that ended between two looks: epoll keeps the
/// order of events. Where the system has no descriptors for processes, it knows none.
class EndOrder {
 public:
  EndOrder() : queue_(::epoll_create1(EPOLL_CLOEXEC)) {}

  /// At once after its start: one that has already ended counts as ending now.
  void watch(std::size_t rank, const Child& child) {
    const auto opened = ::syscall(SYS_pidfd_open, child.process(), 0);
    known_ = known_ && opened >= 0;
    if (!known_) return;
    processes_.emplace_back(static_cast<int>(opened));
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    event.data.u64 = rank;
    known_ = ::epoll_ctl(queue_.number(), EPOLL_CTL_ADD, static_cast<int>(opened), &event) == 0;
  }

  bool known() const { return known_; }

  /// Ranks that have ended, the first one first; in the order of ranks if that is not known.
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
  std::vector<Descriptor> processes_;  // these close on exec by themselves
  std::vector<std::size_t> reported_;
  bool known_ = true;
};

}  // namespace lockstep_run
