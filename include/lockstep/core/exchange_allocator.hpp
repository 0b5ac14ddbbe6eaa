/// \file
/// The allocator of a collective for buffers that it exchanges in place.
#pragma once

#include <cstddef>

namespace lockstep {

/// Allocates memory for buffers that replicas exchange. Callable from any thread.
/// \code
///   context.set_exchange_allocator(member.exchange_allocator());
/// \endcode
class ExchangeAllocator {
 public:
  ExchangeAllocator() = default;
  ExchangeAllocator(const ExchangeAllocator&) = delete;
  ExchangeAllocator& operator=(const ExchangeAllocator&) = delete;
  virtual ~ExchangeAllocator() = default;

  /// Memory aligned to a cache line, valid until `release` or the end of the allocator. \return null
  /// to decline.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  /// \return false if `p` is not memory of this object.
  virtual bool release(std::byte* p) noexcept = 0;
  /// Whether the memory is 0, so that nobody needs to write that.
  virtual bool is_clear() const { return false; }
};

}  // namespace lockstep
