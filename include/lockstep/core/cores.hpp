/// \file
/// The cores that a thread or a process may use. Invariant: there is at least one.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/core/cpu_quota.hpp"
#include "lockstep/core/openmp_places.hpp"
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
  /// Those that the threads of the process may use. An OpenMP runtime that binds threads
  /// (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY) has put the main thread on one place when it
  /// was loaded, and threads started there inherit that: then these are all places. Else they are
  /// the calling thread's.
  [[gnu::cold, gnu::noinline]] static Cores of_process() {
    Cores result;
    if (!openmp_binds()) return result;
    for_cores_of_openmp_places([&](int core) {
      if (core >= 0 && core < CPU_SETSIZE) CPU_SET(static_cast<std::size_t>(core), &result.set_);
    });
    const Cores system = of_system();  // places may name cores that the machine does not have
    CPU_AND(&result.set_, &result.set_, &system.set_);
    return result;
  }
  /// Those that the calling thread could bind itself to.
  [[gnu::cold, gnu::noinline]] static Cores of_system() {
    const Cores before;
    Cores every = before;
    if (!every.is_known_) return before;
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &every.set_);
    every.bind();
    const Cores result;
    before.bind();
    return result;
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
  [[gnu::cold]] Cores share(std::size_t parts, std::size_t index) const {
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
  [[gnu::cold]] std::string bits() const {
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

/// How many threads can compute on `cores` at once under a quota: at least 1.
[[gnu::cold]] inline int usable_cores(const Cores& cores, const std::optional<CpuQuota>& quota) {
  return quota ? std::clamp(quota->cores, 1, cores.count()) : cores.count();
}
/// Of this process.
[[gnu::cold]] inline int usable_cores() {
  return usable_cores(Cores::of_process(), read_cpu_quota());
}

/// For a new thread that does not compute: it may run on all cores of the process, even if OpenMP
/// has bound the thread that started it.
[[gnu::cold, gnu::noinline]] inline void leave_place() {
  if (openmp_binds()) Cores::of_process().bind();
}

}  // namespace lockstep::detail
