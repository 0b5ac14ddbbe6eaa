/// \file
/// Memory of every device whose memory is the host's. Invariant: allocations are aligned to 64
/// bytes.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>

#include "lockstep/core/error.hpp"
#include "lockstep/core/work.hpp"

namespace lockstep {

/// The part of a DeviceContext that allocates and copies: a base for contexts over host memory.
class HostMemory {
 public:
  /// \throws DeviceError if there is not enough memory.
  std::byte* allocate(std::size_t bytes) {
    void* const p = ::operator new(bytes, alignment, std::nothrow);
    if (p == nullptr)
      throw OutOfMemory(
          bytes, 0,
          "host memory: no room for {} bytes; use a smaller batch or a machine with more memory",
          bytes);
    return static_cast<std::byte*>(p);
  }
  void release(std::byte* p, std::size_t) { ::operator delete(p, alignment); }

  void upload(std::byte* to, const std::byte* from, std::size_t bytes) { move(to, from, bytes); }
  void download(std::byte* to, const std::byte* from, std::size_t bytes) { move(to, from, bytes); }
  /// Within the device.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) { move(to, from, bytes); }
  void clear(std::byte* p, std::size_t bytes) {
    if (bytes > 0) std::memset(p, 0, bytes);
  }
  /// What the next calls belong to.
  void begin_work(const Work& work) {
    if (listener_ != nullptr) listener_->begin(work);
  }
  Work work() const { return listener_ == nullptr ? Work{} : listener_->now(); }
  /// From now on `listener` is told when work begins; null: no more.
  void measure_work(WorkListener* listener) {
    begin_work({});
    listener_ = listener;
  }

  /// The host's memory is the device's: returns `p`.
  template <class U>
  const U* feed(int, const U* p, std::size_t) {
    return p;
  }

 private:
  static constexpr std::align_val_t alignment{64};
  // Out of line: where it is inlined, g++ 12 warns of a null pointer that is never copied to.
  [[gnu::noinline]] static void move(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  WorkListener* listener_ = nullptr;
};

}  // namespace lockstep
