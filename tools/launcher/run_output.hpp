/// \file
/// The output of lockstep-run: its own lines and those of the workers. Invariants: a terminal, a
/// pager or a pipe that nobody reads never holds up signals and the collection of workers; output is
/// forwarded in whole lines, prefixed with the rank.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "run_descriptor.hpp"

namespace lockstep_run {

/// Writes to stdout or stderr in a separate thread. A non-blocking descriptor would be non-blocking
/// for all processes that share it.
///
///     write ──> text_ ──> thread ──> stdout          full: workers wait, their output is not read
///                                                    after a signal: what does not fit is dropped
class Output {
 public:
  static constexpr std::size_t most = std::size_t{256} << 10;  ///< bytes, above which it is full

  /// The output of STDOUT_FILENO or STDERR_FILENO: the same one if both are the same file, so that
  /// lines keep their order.
  static Output& of(int to) {
    static Output out(STDOUT_FILENO);
    static const std::unique_ptr<Output> errors =
        is_one_file() ? nullptr : std::make_unique<Output>(STDERR_FILENO);
    return to == STDERR_FILENO && errors ? *errors : out;
  }
  /// Becomes readable when an output has room again, or has written all of its text.
  static const Descriptor& changes() {
    static const Descriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return event;
  }
  static void clear_changes() {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = ::read(changes().number(), &count, sizeof count);
  }
  /// From now on text is dropped while an output is full: the workers must be able to end.
  static void drop_excess() {
    for (const int to : {STDOUT_FILENO, STDERR_FILENO}) {
      const std::scoped_lock lock(of(to).mutex_);
      of(to).drops_ = true;
    }
  }
  static bool is_dropping_excess() {
    const std::scoped_lock lock(of(STDOUT_FILENO).mutex_);
    return of(STDOUT_FILENO).drops_;
  }
  static bool are_written() {
    return of(STDOUT_FILENO).is_written() && of(STDERR_FILENO).is_written();
  }

  explicit Output(int to) : to_(to) { changes(); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  /// Waits until all text is written.
  ~Output() {
    {
      const std::scoped_lock lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  bool has_room() const {
    const std::scoped_lock lock(mutex_);
    return drops_ || text_.size() < most;
  }
  /// Returns at once.
  void write(std::string_view text) {
    if (text.empty()) return;
    const std::scoped_lock lock(mutex_);
    if (drops_ && text_.size() >= most) return;
    if (!thread_.joinable()) try {
        thread_ = std::thread([this] { run(); });
      } catch (const std::system_error&) {  // the limit on threads is reached
        return write_part(text);
      }
    text_ += text;
    changed_.notify_all();
  }

 private:
  static bool is_one_file() {
    struct stat out{};
    struct stat errors{};
    return ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &errors) == 0 &&
           out.st_dev == errors.st_dev && out.st_ino == errors.st_ino;
  }
  bool is_written() const {
    const std::scoped_lock lock(mutex_);
    return text_.empty() && !is_writing_;
  }
  /// As write_all; the descriptor may be non-blocking.
  void write_part(std::string_view part) const {
    while (!part.empty()) {
      const ssize_t n = ::write(to_, part.data(), part.size());
      if (n >= 0) {
        part.remove_prefix(static_cast<std::size_t>(n));
      } else if (errno == EAGAIN) {
        pollfd waited{to_, POLLOUT, 0};
        ::poll(&waited, 1, -1);
      } else if (errno != EINTR) {
        return;  // the reader is gone
      }
    }
  }
  void run() {
    std::string part;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stops_ || !text_.empty(); });
      if (text_.empty()) return;
      part.clear();
      part.swap(text_);
      is_writing_ = true;
      lock.unlock();
      write_part(part);
      lock.lock();
      is_writing_ = false;
      const std::uint64_t one = 1;
      [[maybe_unused]] const ssize_t n = ::write(changes().number(), &one, sizeof one);
    }
  }

  const int to_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;  // not written yet
  bool is_writing_ = false, stops_ = false, drops_ = false;
  std::thread thread_;
};

/// Forwards a worker's stdout or stderr to the launcher's, line by line.
class Stream {
 public:
  Stream(Descriptor from, int to, std::string prefix)
      : from_(std::move(from)), to_(to), prefix_(std::move(prefix)) {}

  int number() const { return from_.number(); }
  /// Whether to wait for this stream: it is open, and its output has room.
  bool is_wanted() const { return number() >= 0 && Output::of(to_).has_room(); }

  /// Forwards available lines, of a limited size, without blocking. \returns the number of bytes read
  std::size_t pump() {
    std::array<char, 65536> bytes;
    ssize_t n;
    do n = ::read(from_.number(), bytes.data(), bytes.size());
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) {
      from_.close();
      return 0;
    }
    rest_.append(bytes.data(), static_cast<std::size_t>(n));
    pass_on();
    return static_cast<std::size_t>(n);
  }
  /// Forwards the rest after the worker exited, up to what is in the pipe now: a process that left the
  /// worker's group may still write. Terminates an incomplete line.
  void finish() {
    int left = 0;
    if (number() >= 0 && ::ioctl(number(), FIONREAD, &left) != 0) left = 0;
    while (left > 0 && number() >= 0) {
      const std::size_t n = pump();
      if (n == 0) break;
      left -= static_cast<int>(n);
    }
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
    Output::of(to_).write(lines);
  }

  Descriptor from_;
  int to_;
  std::string prefix_, rest_;
};

}  // namespace lockstep_run
