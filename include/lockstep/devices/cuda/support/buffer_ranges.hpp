/// \file
/// Per-range data of the flat buffers (penalties, optimizer settings) as a table in GPU memory, so
/// that one launch serves all ranges. Invariant: the host waits only when the table has changed.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include "lockstep/devices/cuda/growing_buffer.hpp"

namespace lockstep::detail::cuda {

/// A table of ranges. `Range` begins with `std::int64_t begin, end` and has no padding. Kernels
/// search it with the prelude's range_at. One table per range type and context:
/// `context.handle<Ranges<Range>>()`.
/// \code
///   ranges.clear();
///   ranges.add(...);                                           // in ascending order
///   context.launch(..., ranges.upload(context), ranges.count(), ...);
/// \endcode
template <class Range>
class Ranges {
  static_assert(std::is_trivially_copyable_v<Range>);

 public:
  /// Starts a new table.
  void clear() { next_.clear(); }
  /// Appends a range, which must begin after the last one.
  void add(const Range& range) { next_.push_back(range); }
  int count() const { return static_cast<int>(next_.size()); }

  /// Copies the table to the GPU if it has changed, and returns its address there.
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
