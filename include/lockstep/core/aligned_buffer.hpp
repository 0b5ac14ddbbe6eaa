/// \file
/// Memory that grows.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <new>

namespace lockstep::detail {

/// A buffer, aligned to cache lines and so for every element type. Its contents are lost when it
/// grows.
class AlignedBuffer {
 public:
  std::byte* reserve(std::size_t bytes) {
    if (bytes > room_) {
      bytes_.reset(static_cast<std::byte*>(::operator new[](bytes, alignment)));
      room_ = bytes;
    }
    return bytes_.get();
  }
  std::byte* data() const { return bytes_.get(); }
  /// Whether p[0..n) lies in it.
  bool holds(const std::byte* p, std::size_t n) const {
    const std::less_equal<> before;
    return bytes_ != nullptr && before(bytes_.get(), p) && before(p + n, bytes_.get() + room_);
  }

 private:
  static constexpr std::align_val_t alignment{64};
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, alignment); }
  };
  std::unique_ptr<std::byte[], Free> bytes_;
  std::size_t room_ = 0;
};

}  // namespace lockstep::detail
