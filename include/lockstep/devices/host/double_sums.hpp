/// \file
/// Sums over examples and pixels in double: one float that millions of terms are added to loses
/// what is smaller than its last bit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace lockstep::detail {

/// Memory of a kernel's gradients of weights while they are summed; what such a kernel prepares.
template <class T>
class DoubleSums {
 public:
  explicit DoubleSums(std::size_t size)
      : size_(size), sums_(std::is_same_v<T, double> ? 0 : size) {}
  std::size_t scratch_bytes() const { return 0; }

  /// Zeros; if T is double, in `to` itself.
  double* begin(T* to) {
    double* const sums = place(to);
    std::fill_n(sums, size_, 0.0);
    return sums;
  }
  /// Writes the sums to `to`.
  void end(T* to) {
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
