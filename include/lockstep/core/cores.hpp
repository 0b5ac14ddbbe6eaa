/// \file
/// The cores that a thread may use. Invariant: there is at least one.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <thread>

#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

/// A set of cores.
class Cores {
 public:
  /// Those that the calling thread may use.
  Cores() {
    CPU_ZERO(&set_);
    is_known_ = sched_getaffinity(0, sizeof set_, &set_) == 0;
  }
  /// Whether the system has told them.
  bool are_known() const { return is_known_; }
  /// At least 1.
  int count() const {
    return std::max(
        1, is_known_ ? CPU_COUNT(&set_) : static_cast<int>(std::thread::hardware_concurrency()));
  }
  /// The index-th of `parts` shares, of one core at least: with more parts than cores some have the
  /// same core.
  Cores share(std::size_t parts, std::size_t index) const {
    const auto cores = static_cast<std::size_t>(count());
    const Slice mine = parts <= cores ? slice_of(cores, parts, index) : Slice{index % cores, 1};
    Cores result = *this;
    std::size_t nth = 0;
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set_)) {
        if (nth < mine.first || nth >= mine.first + mine.count) CPU_CLR(core, &result.set_);
        ++nth;
      }
    return result;
  }
  /// '1' for each core of the set, '0' for others, up to the last one of the set.
  std::string bits() const {
    std::string result;
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
      if (!is_known_ || CPU_ISSET(core, &set_)) {
        result.resize(core, '0');
        result += '1';
      }
    return result;
  }
  /// From now on the calling thread, and the threads that it starts, run on these cores only.
  void bind() const {
    if (is_known_) sched_setaffinity(0, sizeof set_, &set_);
  }
  friend bool operator==(const Cores& a, const Cores& b) { return CPU_EQUAL(&a.set_, &b.set_); }

 private:
  cpu_set_t set_;
  bool is_known_;
};

/// For its life, the calling thread runs on these cores only, and those that it starts.
class CoreScope {
 public:
  explicit CoreScope(const Cores& cores) { cores.bind(); }
  CoreScope(const CoreScope&) = delete;
  CoreScope& operator=(const CoreScope&) = delete;
  ~CoreScope() { before_.bind(); }

 private:
  Cores before_;
};

}  // namespace lockstep::detail
