/// \file
/// Allocates from the heap of a shared memory for one member of a group. Invariants: what is allocated
/// is reserved, so that no access of any process fails; after `make_private` it is private.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/collectives/shared_memory.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/exchange_allocator.hpp"

namespace lockstep::detail {

/// The areas of all members in the heap of a memory, and the blocks in this member's.
///
///     heap | member 0: block, block, free ... | member 1 | ...        each `area` bytes
/// \code
///   SharedAllocator allocator(memory, first_member_of_channel, rank, area);
///   std::byte* p = allocator.allocate(4000);
///   allocator.place_of(p + 400, 40);      // 400 after p's place; another member finds it by `find`
/// \endcode
class SharedAllocator final : public ExchangeAllocator {
 public:
  static constexpr std::uint64_t nowhere = ~std::uint64_t{0};

  /// `first` is the area of member 0, `rank` this member. Allocates nothing if the memory has no such
  /// areas.
  LOCKSTEP_COLD_DECL SharedAllocator(std::shared_ptr<SharedMemory> memory, std::size_t first,
                                     std::size_t rank, std::size_t area);

  LOCKSTEP_COLD_DECL std::byte* allocate(std::size_t bytes) override;
  LOCKSTEP_COLD_DECL bool release(std::byte* p) noexcept override;

  /// The offset of p[0..bytes) in this member's area, or `nowhere`.
  std::uint64_t place_of(const void* p, std::size_t bytes) const {
    const auto at = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(p) - own_);
    return at < area_ && bytes <= area_ - at && !is_private_.load(std::memory_order_relaxed)
               ? at
               : nowhere;
  }
  /// p[0..bytes) of member r, whose place it is; null if that is not in its area.
  std::byte* find(std::size_t r, std::uint64_t place, std::size_t bytes) const {
    return place < area_ && bytes <= area_ - place ? begin_ + r * area_ + place : nullptr;
  }
  /// Moves all blocks to private memory at the same address, and allocates no more: other
  /// processes that still write do not change it any more.
  LOCKSTEP_COLD_DECL void make_private() noexcept;

 private:
  static constexpr std::size_t page = std::size_t{64} << 10;  // the largest of any system
  struct Block {
    std::size_t at, bytes;
  };

  std::shared_ptr<SharedMemory> memory_;
  std::byte* begin_ = nullptr;  // of member 0's area
  std::uintptr_t own_ = 0;      // of this member's
  std::size_t area_ = 0;
  std::atomic<bool> is_private_{false};
  std::mutex mutex_;
  std::vector<Block> blocks_;  // by place
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/shared_allocator.ipp"
#endif
