/// \file
/// Workspace of grid-wide sums. Invariants: one per GPU context, whose kernels run one after the
/// other; its counters are 0 between kernels.
///
///     [ 1024 arrival counters | 4 totals | partial sums: 8 per block, 1024 blocks ]
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/devices/cuda/commands.hpp"
#include "lockstep/devices/cuda/memory.hpp"

namespace lockstep::detail::cuda {

/// Memory for the prelude's grid_sum and last_to_arrive: `context.handle<SumWorkspace>().get()` is
/// a kernel argument.
class SumWorkspace {
 public:
  /// Limits of a grid: blocks, and sums per kernel.
  static constexpr std::size_t max_blocks = 1024, max_sums = 8, totals = 4;
  /// Counters of arrived blocks, one per group.
  static constexpr std::size_t groups = 1024;
  static constexpr std::size_t bytes =
      sizeof(unsigned) * groups + sizeof(double) * (totals + max_sums * max_blocks);

  /// Allocates the memory and sets it to 0. \throws OutOfMemory.
  [[gnu::cold]] SumWorkspace() : memory_(allocate_memory(bytes)) {
    check(driver().cuMemsetD8Async(memory_, 0, bytes, nullptr), "clearing memory");
    check(driver().cuStreamSynchronize(nullptr), "waiting for the GPU");
  }
  ~SumWorkspace() { driver().cuMemFree(memory_); }
  SumWorkspace(const SumWorkspace&) = delete;
  SumWorkspace& operator=(const SumWorkspace&) = delete;
  CUdeviceptr get() const { return memory_; }

  /// A grid for `units` of work, `each` of them per block at a time, with at most `max_blocks`
  /// blocks.
  static Grid grid(std::size_t units, std::size_t each = 256, unsigned threads = 256) {
    const std::size_t blocks = (units + each - 1) / each;
    return {{static_cast<unsigned>(std::clamp<std::size_t>(blocks, 1, max_blocks)), 1, 1},
            {threads, 1, 1}};
  }

 private:
  CUdeviceptr memory_;
};

}  // namespace lockstep::detail::cuda
