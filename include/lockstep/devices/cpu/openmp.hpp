/// \file
/// The OpenMP runtime that oneDNN computes with, called without OpenMP pragmas: the pool of threads
/// is one for the library and for the loops of this device, with g++ and with clang, and no
/// compiler flag is needed. Invariant: a loop is cut into contiguous parts by the number of threads
/// that a context has, and the threads that come share the parts, so equal sizes and thread counts
/// give equal bits whatever team the runtime gives.
#pragma once

#include <cstddef>
#include <optional>

#include "lockstep/core/config.hpp"
#include "lockstep/core/cores.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/devices/cpu/team.hpp"

namespace lockstep::detail {

/// The number of OpenMP threads of the calling thread, and its cores if some are given, for the
/// object's life. \throws UsageError if the calling thread cannot have them: inside a parallel
/// region of the program, or in a forked child.
class ThreadScope {
 public:
  LOCKSTEP_COLD_DECL ThreadScope(int threads, const std::optional<Cores>& cores);
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  TeamSettings settings_;
  std::optional<CoreScope> bound_;
};

/// Examples that are worth a thread, if one has `size` elements: waking a thread costs some
/// microseconds.
constexpr std::size_t parallel_grain(std::size_t size) { return (16384 + size) / (size + 1) + 1; }

/// `body(Slice, index)` for at most `threads` slices, which cover `n`; no slice but the last is cut
/// below `grain`. Each slice has an index of its own, below `threads`. The slices do not depend on
/// the team that computes them. The body must not throw.
LOCKSTEP_DECL void parallel_ranges(int threads, std::size_t n, std::size_t grain,
                                   FunctionRef<void(Slice, std::size_t)> body);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cpu/openmp.ipp"
#endif
