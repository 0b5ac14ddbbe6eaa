/// \file
/// The cores that a thread or a process may use. Invariant: a set has at least one core.
#pragma once

#include <sched.h>

#include <cstddef>
#include <optional>
#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/core/process/cpu_quota.hpp"

namespace lockstep::detail {

/// A set of cores (CPU affinity mask).
class Cores {
 public:
  /// The affinity of the calling thread.
  LOCKSTEP_DECL Cores();
  /// The cores available to the threads of the process. An OpenMP runtime that binds threads
  /// (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY) binds the main thread to one place when it is
  /// loaded, and new threads inherit this; the result is then the union of all places. Otherwise
  /// the affinity of the calling thread.
  LOCKSTEP_COLD_DECL static Cores of_process();
  /// All cores that the calling thread could bind itself to.
  LOCKSTEP_COLD_DECL static Cores of_system();
  /// Whether the system reported the affinity.
  bool are_known() const { return is_known_; }
  /// Number of cores, at least 1.
  LOCKSTEP_DECL int count() const;
  /// Share number `index` of `parts`, with at least one core each; with more parts than cores,
  /// several parts share a core.
  LOCKSTEP_COLD_DECL Cores share(std::size_t parts, std::size_t index) const;
  /// The mask as text, core 0 first: '1' for each core of the set, '0' for others; ends at the last
  /// core of the set.
  LOCKSTEP_COLD_DECL std::string bits() const;
  /// Binds the calling thread, and threads that it starts from now on, to these cores.
  LOCKSTEP_DECL void bind() const;
  friend bool operator==(const Cores& a, const Cores& b) { return CPU_EQUAL(&a.set_, &b.set_); }

 private:
  cpu_set_t set_;
  bool is_known_;
};

/// Binds the calling thread, and threads that it starts, to these cores for the lifetime of the
/// object.
class CoreScope {
 public:
  explicit CoreScope(const Cores& cores) { cores.bind(); }
  CoreScope(const CoreScope&) = delete;
  CoreScope& operator=(const CoreScope&) = delete;
  ~CoreScope() { before_.bind(); }

 private:
  Cores before_;
};

/// Number of threads that can compute on `cores` at the same time under a quota, at least 1.
LOCKSTEP_COLD_DECL int usable_cores(const Cores& cores, const std::optional<CpuQuota>& quota);
/// Number of threads that can compute at the same time in this process.
LOCKSTEP_COLD_DECL int usable_cores();

/// Undoes the binding inherited from OpenMP in a new thread that does not compute: it may then run
/// on all cores of the process.
LOCKSTEP_COLD_DECL void leave_openmp_place();

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/process/cores.ipp"
#endif
