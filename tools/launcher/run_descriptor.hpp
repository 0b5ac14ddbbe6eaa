/// \file
/// File descriptors of lockstep-run, and errors of system calls.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep_run {

/// Throws std::runtime_error with the text of errno, and a remedy if a limit was reached.
[[noreturn]] inline void fail(const std::string& what) {
  const int error = errno;
  std::string sentence = what + ": " + std::strerror(error);
  if (error == EAGAIN)
    sentence +=
        "; the limit on processes and threads is reached: start fewer workers, or raise it "
        "(ulimit -u; in a container pids.max of its cgroup)";
  if (error == ELOOP) sentence += "; remove the link, or choose another folder";
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

}  // namespace lockstep_run
