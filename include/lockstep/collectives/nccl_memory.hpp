/// \file
/// Memory that NCCL reduces where it lies, without copies to buffers of its own. Invariants: memory
/// is registered with a communicator only while both live, and a communicator that is aborted ends
/// its registrations itself; what cannot be registered is copied by NCCL, which is no error and
/// said once in a process.
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

/// Memory of one GPU that was taken from NCCL.
class NcclMemory {
 public:
  struct Range {
    void* data;
    std::size_t bytes;
  };

  /// With the GPU's context current. Null: NCCL gives none.
  LOCKSTEP_COLD_DECL std::byte* allocate(std::size_t bytes);
  LOCKSTEP_COLD_DECL void free(std::byte* p) noexcept;

  /// How often memory was asked for: the same on all ranks, also where some got none.
  std::size_t requests() const { return requests_; }
  /// Whether NCCL gave all that it was asked for.
  bool is_complete() const { return is_complete_; }
  const std::vector<Range>& ranges() const { return ranges_; }

  /// Why NCCL copies.
  LOCKSTEP_COLD_DECL static void warn_once(const char* why, const char* more);
  static inline std::atomic<bool> warned{false};

 private:
  std::vector<Range> ranges_;
  std::size_t requests_ = 0;
  bool is_complete_ = true;
};

/// What one communicator knows of a GPU's memory.
class NcclRegistrations {
 public:
  /// What it does not know yet. False: not all could be registered.
  LOCKSTEP_COLD_DECL bool add(ncclComm_t communicator, const NcclMemory& memory);
  LOCKSTEP_COLD_DECL void remove(ncclComm_t communicator, const void* data);
  LOCKSTEP_COLD_DECL void remove_all(ncclComm_t communicator);
  /// The communicator was aborted.
  void clear() { handles_.clear(); }

 private:
  std::vector<std::pair<const void*, void*>> handles_;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/nccl_memory.ipp"
#endif
