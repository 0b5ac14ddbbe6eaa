/// \file
/// Parallel loops on the OpenMP runtime that oneDNN uses, called without OpenMP pragmas. So oneDNN
/// and the loops of this device share one pool of threads, with g++ and with clang, and no compiler
/// flag is needed.
///
///     n elements, 4 threads in the context:   | part 0 | part 1 | part 2 | part 3 |
///     team of 4:                                 t0       t1       t2       t3
///     team of 2 (the runtime granted fewer):     t0       t1       t0       t1
///
/// Invariant: the number of parts depends on the context's thread count only, never on the team, so
/// equal sizes and thread counts give equal bits.
#pragma once

#include <cstddef>
#include <optional>

#include "lockstep/core/config.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/process/cores.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/devices/cpu/team.hpp"

namespace lockstep::detail {

/// Sets the calling thread's OpenMP team size and, if given, its cores; the destructor restores
/// both. \throws UsageError if the calling thread cannot get that team: inside a parallel region of
/// the program, or in a forked child.
class ThreadScope {
 public:
  LOCKSTEP_COLD_DECL ThreadScope(int threads, const std::optional<Cores>& cores);
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  TeamSettings settings_;
  std::optional<CoreScope> bound_;
};

/// Minimum examples per thread, for examples of `size` elements: waking a thread costs a few
/// microseconds, the time for about 16384 elements.
constexpr std::size_t parallel_grain(std::size_t size) { return (16384 + size) / (size + 1) + 1; }

/// Calls body(Slice, index) for at most `threads` disjoint slices that cover [0, n), each of at
/// least `grain` elements. Indices are unique and below `threads`, so they can select a per-thread
/// buffer. The slices do not depend on the team that runs them. The body must not throw.
LOCKSTEP_DECL void parallel_ranges(int threads, std::size_t n, std::size_t grain,
                                   FunctionRef<void(Slice, std::size_t)> body);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cpu/openmp.ipp"
#endif
