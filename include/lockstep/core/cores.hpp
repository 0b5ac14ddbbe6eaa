/// \file
/// The cores that a thread or a process may use. Invariant: there is at least one.
#pragma once

#include <sched.h>

#include <cstddef>
#include <optional>
#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/core/cpu_quota.hpp"

namespace lockstep::detail {

/// A set of cores.
class Cores {
 public:
  /// Those that the calling thread may use.
  LOCKSTEP_DECL Cores();
  /// Those that the threads of the process may use. An OpenMP runtime that binds threads
  /// (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY) has put the main thread on one place when it
  /// was loaded, and threads started there inherit that: then these are all places. Else they are
  /// the calling thread's.
  LOCKSTEP_COLD_DECL static Cores of_process();
  /// Those that the calling thread could bind itself to.
  LOCKSTEP_COLD_DECL static Cores of_system();
  /// Whether the system has told them.
  bool are_known() const { return is_known_; }
  /// At least 1.
  LOCKSTEP_DECL int count() const;
  /// The index-th of `parts` shares, of one core at least: with more parts than cores some have the
  /// same core.
  LOCKSTEP_COLD_DECL Cores share(std::size_t parts, std::size_t index) const;
  /// '1' for each core of the set, '0' for others, up to the last one of the set.
  LOCKSTEP_COLD_DECL std::string bits() const;
  /// From now on the calling thread, and the threads that it starts, run on these cores only.
  LOCKSTEP_DECL void bind() const;
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
LOCKSTEP_COLD_DECL int usable_cores(const Cores& cores, const std::optional<CpuQuota>& quota);
/// Of this process.
LOCKSTEP_COLD_DECL int usable_cores();

/// For a new thread that does not compute: it may run on all cores of the process, even if OpenMP
/// has bound the thread that started it.
LOCKSTEP_COLD_DECL void leave_openmp_place();

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/cores.ipp"
#endif
