/// \file
/// Memory that takes space only where it is written.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "lockstep/core/config.hpp"
#include "lockstep/core/exchange_allocator.hpp"

namespace lockstep::detail {

/// Allocates pages of the system that are 0 and that it provides at the first write (mmap): a buffer
/// may be much larger than the machine's memory if most of it is never written.
/// \code
///   context.set_exchange_allocator(std::make_shared<LazyMemory>());   // before its buffers
/// \endcode
class LazyMemory final : public ExchangeAllocator {
 public:
  LOCKSTEP_COLD_DECL ~LazyMemory() override;
  LOCKSTEP_COLD_DECL std::byte* allocate(std::size_t bytes) override;
  LOCKSTEP_COLD_DECL bool release(std::byte* p) noexcept override;
  bool is_clear() const override { return true; }

 private:
  std::mutex mutex_;
  std::map<std::byte*, std::size_t> sizes_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/process/lazy_memory.ipp"
#endif
