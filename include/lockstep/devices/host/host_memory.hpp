/// \file
/// Memory functions of every device over host memory. Invariant: allocations are aligned to 64
/// bytes, a cache line.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/exchange_allocator.hpp"
#include "lockstep/core/work.hpp"

namespace lockstep {

/// Base class of contexts over host memory: the allocating and copying part of DeviceContext.
class HostMemory {
 public:
  /// \throws OutOfMemory, a DeviceError, if there is not enough memory.
  std::byte* allocate(std::size_t bytes) {
    void* const p = ::operator new(bytes, alignment, std::nothrow);
    if (p == nullptr)
      throw OutOfMemory(
          bytes, 0,
          "host memory: cannot allocate {} bytes; use a smaller batch or a machine with more "
          "memory",
          bytes);
    return static_cast<std::byte*>(p);
  }
  void release(std::byte* p, std::size_t) {
    if (allocator_ == nullptr || !allocator_->release(p)) ::operator delete(p, alignment);
  }
  /// Memory for a buffer that replicas exchange. \return null to use `allocate`.
  std::byte* allocate_exchanged(std::size_t bytes) {
    return allocator_ == nullptr ? nullptr : allocator_->allocate(bytes);
  }
  bool exchanged_is_clear() const { return allocator_ != nullptr && allocator_->is_clear(); }
  /// Sets the allocator of `allocate_exchanged` for the rest of the context's life; null: none.
  void set_exchange_allocator(std::shared_ptr<ExchangeAllocator> allocator) {
    allocator_ = std::move(allocator);
  }

  void upload(std::byte* to, const std::byte* from, std::size_t bytes) { move(to, from, bytes); }
  void download(std::byte* to, const std::byte* from, std::size_t bytes) { move(to, from, bytes); }
  /// Copies within the device.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) { move(to, from, bytes); }
  void clear(std::byte* p, std::size_t bytes) {
    if (bytes > 0) std::memset(p, 0, bytes);
  }
  /// Attributes the calls that follow to `work`, for the profiler.
  void begin_work(const Work& work) {
    if (listener_ != nullptr) listener_->begin(work);
  }
  Work work() const { return listener_ == nullptr ? Work{} : listener_->now(); }
  /// Notifies `listener` whenever work begins; null unregisters it.
  void measure_work(WorkListener* listener) {
    begin_work({});
    listener_ = listener;
  }

  /// Returns `p`: the device reads a batch where it lies, without a copy.
  template <class U>
  const U* feed(int, const U* p, std::size_t) {
    return p;
  }

 private:
  static constexpr std::align_val_t alignment{64};
  // Not inlined: g++ 12 would warn about a null destination, which `bytes > 0` excludes.
  [[gnu::noinline]] static void move(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  WorkListener* listener_ = nullptr;
  std::shared_ptr<ExchangeAllocator> allocator_{};
};

namespace detail {
/// A context that can use such an allocator: one with its own `release` may not know of it.
template <class C>
concept UsesExchangeAllocator = std::derived_from<C, HostMemory> && requires {
  { &C::release } -> std::same_as<void (HostMemory::*)(std::byte*, std::size_t)>;
};
}  // namespace detail

}  // namespace lockstep
