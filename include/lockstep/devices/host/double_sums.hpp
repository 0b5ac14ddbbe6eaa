/// \file
/// Accumulation over examples and pixels in double. A float accumulator with millions of terms
/// loses every term that is smaller than half of its last bit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace lockstep::detail {

/// Accumulators in double for the weight gradients of one kernel; the kernel's prepared state.
template <class T>
class DoubleSums {
 public:
  explicit DoubleSums(std::size_t size)
      : size_(size), sums_(std::is_same_v<T, double> ? 0 : size) {}
  std::size_t scratch_bytes() const { return 0; }

  /// Returns zeroed accumulators. They are `to` itself if T is double. Null if `to` is.
  double* begin(T* to) {
    if (to == nullptr) return nullptr;
    double* const sums = place(to);
    std::fill_n(sums, size_, 0.0);
    return sums;
  }
  /// Rounds the sums into `to`.
  void end(T* to) {
    if (to == nullptr) return;
    if constexpr (!std::is_same_v<T, double>)
      std::transform(sums_.begin(), sums_.end(), to, [](double v) { return static_cast<T>(v); });
  }

 private:
  double* place([[maybe_unused]] T* to) {
    if constexpr (std::is_same_v<T, double>)
      return to;
    else
      return sums_.data();
  }

  std::size_t size_;
  std::vector<double> sums_;
};

}  // namespace lockstep::detail
