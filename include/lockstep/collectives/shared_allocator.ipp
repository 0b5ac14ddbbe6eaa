#pragma once

#include "lockstep/collectives/shared_allocator.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

SharedAllocator::SharedAllocator(std::shared_ptr<SharedMemory> memory, std::size_t first,
                                 std::size_t rank, std::size_t area)
    : memory_(std::move(memory)) {
  if (memory_->heap_bytes() < (first + rank + 1) * area) return;
  begin_ = memory_->heap() + first * area;
  own_ = reinterpret_cast<std::uintptr_t>(begin_ + rank * area);
  area_ = area;
}

std::byte* SharedAllocator::allocate(std::size_t bytes) {
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

bool SharedAllocator::release(std::byte* p) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto at = reinterpret_cast<std::uintptr_t>(p) - own_;
  return std::erase_if(blocks_, [&](const Block& block) { return block.at == at; }) > 0;
}

void SharedAllocator::make_private() noexcept {
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

}  // namespace lockstep::detail
