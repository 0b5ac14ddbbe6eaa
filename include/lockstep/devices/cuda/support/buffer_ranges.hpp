/// \file
/// What is known of ranges of the flat buffers, as a table in the GPU's memory, so that one launch
/// serves them all. Invariant: the host waits only where the table has changed.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include "lockstep/devices/cuda/growing_buffer.hpp"

namespace lockstep::detail::cuda {

/// `Range` begins with `std::int64_t begin, end`, and has no gaps. Kernels find one by the
/// prelude's range_at. One table for each type of range and context:
/// `context.handle<Ranges<Range>>()`.
/// \code
///   ranges.begin();
///   ranges.add(...);                                           // they ascend
///   context.launch(..., ranges.upload(context), ranges.count(), ...);
/// \endcode
template <class Range>
class Ranges {
  static_assert(std::is_trivially_copyable_v<Range>);

 public:
  void begin() { next_.clear(); }
  void add(const Range& range) { next_.push_back(range); }
  int count() const { return static_cast<int>(next_.size()); }

  /// Where they lie from then on.
  CUdeviceptr upload(CudaContext& context) {
    const std::size_t bytes = next_.size() * sizeof(Range);
    if (next_.size() != last_.size() || std::memcmp(next_.data(), last_.data(), bytes) != 0)
      change(context, bytes);
    return device_ranges_;
  }

 private:
  void change(CudaContext& context, std::size_t bytes) {
    last_.clear();
    device_ranges_ = buffer_.get(context, bytes);
    context.upload(reinterpret_cast<std::byte*>(device_ranges_),
                   reinterpret_cast<const std::byte*>(next_.data()), bytes);
    last_ = next_;
  }

  GrowingBuffer buffer_;
  CUdeviceptr device_ranges_ = 0;
  std::vector<Range> last_, next_;
};

}  // namespace lockstep::detail::cuda
