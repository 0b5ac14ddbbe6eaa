/// \file
/// Allocates from the heap of a shared memory for one member of a group. Invariants: what is allocated
/// is reserved, so that no access of any process fails; after `make_private` it is private.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/collectives/shared_memory/shared_memory.hpp"
#include "lockstep/core/error.hpp"
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
  [[gnu::cold]] SharedAllocator(std::shared_ptr<SharedMemory> memory, std::size_t first,
                                std::size_t rank, std::size_t area)
      : memory_(std::move(memory)) {
    if (memory_->heap_bytes() < (first + rank + 1) * area) return;
    begin_ = memory_->heap() + first * area;
    own_ = reinterpret_cast<std::uintptr_t>(begin_ + rank * area);
    area_ = area;
  }

  [[gnu::cold]] std::byte* allocate(std::size_t bytes) override {
    const std::scoped_lock lock(mutex_);
    const std::size_t size = (bytes + page - 1) / page * page;
    if (is_private_ || size == 0 || size > area_) return nullptr;
    std::size_t at = 0;
    const auto next = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& block) {
      if (block.at - at >= size) return true;
      at = block.at + block.bytes;
      return false;
    });
    if (area_ - at < size) return nullptr;
    auto* const p = reinterpret_cast<std::byte*>(own_ + at);
    try {
      if (!memory_->reserve(p, size)) return nullptr;
    } catch (const Error&) {
      return nullptr;  // the caller's allocation reports the shortage
    }
    blocks_.insert(next, {at, size});
    return p;
  }
  [[gnu::cold]] bool release(std::byte* p) noexcept override {
    const std::scoped_lock lock(mutex_);
    const auto at = reinterpret_cast<std::uintptr_t>(p) - own_;
    return std::erase_if(blocks_, [&](const Block& block) { return block.at == at; }) > 0;
  }

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
  [[gnu::cold]] void make_private() noexcept {
    const std::scoped_lock lock(mutex_);
    if (is_private_.exchange(true)) return;
    for (const Block& block : blocks_) {
      void* const own =
          ::mmap(nullptr, block.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (own == MAP_FAILED) return;  // it stays shared; the group has ended anyway
      auto* const shared = reinterpret_cast<void*>(own_ + block.at);
      std::memcpy(own, shared, block.bytes);
      if (::mremap(own, block.bytes, block.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, shared) ==
          MAP_FAILED)
        ::munmap(own, block.bytes);
    }
  }

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
