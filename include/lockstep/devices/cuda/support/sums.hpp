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

/// Memory of the prelude's grid_sum and last_to_arrive: `context.handle<SumRoom>().get()` is a
/// kernel's argument.
class SumRoom {
 public:
  /// Blocks of a grid, and numbers that it may sum.
  static constexpr std::size_t most_blocks = 1024, most_sums = 8, totals = 4;
  /// Counters of blocks that have arrived.
  static constexpr std::size_t groups = 1024;
  static constexpr std::size_t bytes =
      sizeof(unsigned) * groups + sizeof(double) * (totals + most_sums * most_blocks);

  LOCKSTEP_COLD_DECL SumRoom();
  LOCKSTEP_DECL ~SumRoom();
  SumRoom(const SumRoom&) = delete;
  SumRoom& operator=(const SumRoom&) = delete;
  CUdeviceptr get() const { return room_; }

  /// A grid for `units` of work, `each` of them a block at a time.
  LOCKSTEP_DECL static Grid grid(std::size_t units, std::size_t each = 256, unsigned threads = 256);

 private:
  CUdeviceptr room_;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/support/sums.ipp"
#endif
