/// \file
/// Memory that NCCL reduces in place (zero-copy), without copying it to its internal buffers.
/// Invariants: memory is registered with a communicator only while both live, and aborting a
/// communicator ends its registrations; NCCL copies what cannot be registered, which is not an
/// error and is logged once per process.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/devices/cuda/libraries/nccl.hpp"

namespace lockstep::detail::cuda {

/// The memory of one GPU that was allocated by ncclMemAlloc.
class NcclMemory {
 public:
  struct Range {
    void* data;
    std::size_t bytes;
  };

  /// Call it with the GPU's context current. \return null if NCCL cannot allocate.
  LOCKSTEP_COLD_DECL std::byte* allocate(std::size_t bytes);
  LOCKSTEP_COLD_DECL void free(std::byte* p) noexcept;

  /// The number of allocations, failed ones included: equal on all ranks.
  std::size_t requests() const { return requests_; }
  /// Whether all allocations succeeded.
  bool is_complete() const { return is_complete_; }
  const std::vector<Range>& ranges() const { return ranges_; }

  /// Logs why NCCL copies gradients, the first time in this process.
  LOCKSTEP_COLD_DECL static void warn_once(const char* why, const char* more);
  static inline std::atomic<bool> warned{false};

 private:
  std::vector<Range> ranges_;
  std::size_t requests_ = 0;
  bool is_complete_ = true;
};

/// The registrations of a GPU's memory with one communicator.
class NcclRegistrations {
 public:
  /// Registers the ranges that are not registered yet. \return false if one could not be.
  LOCKSTEP_COLD_DECL bool add(ncclComm_t communicator, const NcclMemory& memory);
  LOCKSTEP_COLD_DECL void remove(ncclComm_t communicator, const void* data);
  LOCKSTEP_COLD_DECL void remove_all(ncclComm_t communicator);
  /// Call after the communicator was aborted, which ended the registrations.
  void clear() { handles_.clear(); }

 private:
  std::vector<std::pair<const void*, void*>> handles_;  // start of a range, NCCL's handle
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/cuda/nccl_memory.ipp"
#endif
