#pragma once

#include "lockstep/core/process/lazy_memory.hpp"

#include <sys/mman.h>

namespace lockstep::detail {

LazyMemory::~LazyMemory() {
  for (const auto& [p, bytes] : sizes_) ::munmap(p, bytes);
}

std::byte* LazyMemory::allocate(std::size_t bytes) {
  void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  const std::scoped_lock lock(mutex_);
  sizes_.emplace(static_cast<std::byte*>(p), bytes);
  return static_cast<std::byte*>(p);
}

bool LazyMemory::release(std::byte* p) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto found = sizes_.find(p);
  if (found == sizes_.end()) return false;
  ::munmap(p, found->second);
  sizes_.erase(found);
  return true;
}

}  // namespace lockstep::detail
