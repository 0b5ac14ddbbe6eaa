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

#include "lockstep/core/log.hpp"
#include "lockstep/core/text.hpp"
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
  [[gnu::cold]] std::byte* take(std::size_t bytes) {
    ++asked_;
    if (nccl().registers_memory()) {
      void* p = nullptr;
      const ncclResult_t result = nccl().ncclMemAlloc(&p, bytes);
      if (result == ncclSuccess) {
        ranges_.push_back({p, bytes});
        return static_cast<std::byte*>(p);
      }
      tell("it gave none: ", nccl().ncclGetErrorString(result));
    } else {
      tell("it is older than 2.19", "");
    }
    is_whole_ = false;
    return nullptr;
  }
  [[gnu::cold]] void give(std::byte* p) noexcept {
    std::erase_if(ranges_, [&](const Range& r) { return r.data == p; });
    nccl().ncclMemFree(p);
  }

  /// How often memory was asked for: the same on all ranks, also where some got none.
  std::size_t asked() const { return asked_; }
  /// Whether NCCL gave all that it was asked for.
  bool is_whole() const { return is_whole_; }
  const std::vector<Range>& ranges() const { return ranges_; }

  /// Why NCCL copies.
  [[gnu::cold]] static void tell(const char* why, const char* more) {
    if (!told.exchange(true))
      log(LogLevel::warning,
          text({"nccl: memory cannot be registered with it, since ", why, more,
                "; gradients go by way of NCCL's own buffers, which is slower"}));
  }
  static inline std::atomic<bool> told{false};

 private:
  std::vector<Range> ranges_;
  std::size_t asked_ = 0;
  bool is_whole_ = true;
};

/// What one communicator knows of a GPU's memory.
class NcclRegistrations {
 public:
  /// What it does not know yet. False: not all could be registered.
  [[gnu::cold]] bool add(ncclComm_t communicator, const NcclMemory& memory) {
    if (!memory.is_whole()) return false;
    for (const NcclMemory::Range& range : memory.ranges()) {
      if (std::any_of(all_.begin(), all_.end(), [&](auto& r) { return r.first == range.data; }))
        continue;
      void* handle = nullptr;
      const ncclResult_t result =
          nccl().ncclCommRegister(communicator, range.data, range.bytes, &handle);
      if (result != ncclSuccess) {
        NcclMemory::tell("it refuses: ", nccl().ncclGetErrorString(result));
        return false;
      }
      all_.emplace_back(range.data, handle);
    }
    return true;
  }
  [[gnu::cold]] void remove(ncclComm_t communicator, const void* data) {
    std::erase_if(all_, [&](const auto& r) {
      if (r.first == data) nccl().ncclCommDeregister(communicator, r.second);
      return r.first == data;
    });
  }
  [[gnu::cold]] void remove_all(ncclComm_t communicator) {
    for (const auto& [data, handle] : all_) nccl().ncclCommDeregister(communicator, handle);
    all_.clear();
  }
  /// The communicator was aborted.
  void forget() { all_.clear(); }

 private:
  std::vector<std::pair<const void*, void*>> all_;
};

}  // namespace lockstep::detail::cuda
