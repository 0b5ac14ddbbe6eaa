/// \file
/// Room for the sums that a kernel makes over all its blocks. Invariants: one room a GPU's context,
/// whose kernels run one after the other; its counters are 0 between them.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/commands.hpp"
#include "lockstep/devices/cuda/memory.hpp"

namespace lockstep::detail::cuda {

/// Memory of the prelude's grid_sum and last_to_arrive: `context.handle<SumWorkspace>().get()` is a
/// kernel's argument.
class SumWorkspace {
 public:
  /// Blocks of a grid, and numbers that it may sum.
  static constexpr std::size_t max_blocks = 1024, max_sums = 8, totals = 4;
  /// Counters of blocks that have arrived.
  static constexpr std::size_t groups = 1024;
  static constexpr std::size_t bytes =
      sizeof(unsigned) * groups + sizeof(double) * (totals + max_sums * max_blocks);

  LOCKSTEP_COLD_DECL SumWorkspace();
  LOCKSTEP_DECL ~SumWorkspace();
  SumWorkspace(const SumWorkspace&) = delete;
  SumWorkspace& operator=(const SumWorkspace&) = delete;
  CUdeviceptr get() const { return memory_; }

  /// A grid for `units` of work, `each` of them a block at a time.
  LOCKSTEP_DECL static Grid grid(std::size_t units, std::size_t each = 256, unsigned threads = 256);

 private:
  CUdeviceptr memory_;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/support/sums.ipp"
#endif
