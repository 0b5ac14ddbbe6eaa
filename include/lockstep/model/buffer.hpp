/// \file
/// Owned device memory.
#pragma once

#include <cstddef>
#include <utility>

namespace lockstep::detail {

/// Tag of a buffer that is exchanged with other replicas; a device may allocate different memory
/// for it.
struct Exchanged {};

/// `size` elements of device memory, initialized to zero. Must not outlive its context.
template <class Context, class T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(Context& context, std::size_t size) : context_(&context), size_(size) {
    if (size_ > 0) adopt(context.allocate(bytes()));
  }
  Buffer(Context& context, std::size_t size, Exchanged) : context_(&context), size_(size) {
    if (size_ == 0) return;
    std::byte* p = nullptr;
    if constexpr (requires { context.allocate_exchanged(bytes()); })
      p = context.allocate_exchanged(bytes());
    if constexpr (requires { context.exchanged_is_clear(); })
      if (p != nullptr && context.exchanged_is_clear()) {
        data_ = reinterpret_cast<T*>(p);
        return;
      }
    adopt(p != nullptr ? p : context.allocate(bytes()));
  }
  Buffer(Buffer&& other) noexcept
      : context_(other.context_),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer() {
    if (data_) context_->release(reinterpret_cast<std::byte*>(data_), bytes());
  }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }

  /// Copies size() elements from `host` to the device.
  void upload(const T* host) const {
    if (size_ > 0)
      context_->upload(reinterpret_cast<std::byte*>(data_),
                       reinterpret_cast<const std::byte*>(host), bytes());
  }
  void download(T* host) const {
    if (size_ > 0)
      context_->download(reinterpret_cast<std::byte*>(host),
                         reinterpret_cast<const std::byte*>(data_), bytes());
  }

 private:
  void adopt(std::byte* p) {
    data_ = reinterpret_cast<T*>(p);
    context_->clear(p, bytes());
  }

  Context* context_ = nullptr;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep::detail
