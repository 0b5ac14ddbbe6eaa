/// \file
/// `per_image_standardization` scales each image to mean 0 and standard deviation 1. Invariant:
/// both are sums in double for every device type, added in an order that depends on the size alone.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/core/shape.hpp"
#include "lockstep/data/images/image_map.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// Sum of f(x[i]) in double. A constant number of lanes lets g++ 12 vectorize the loop at `-O2`.
template <class T, class F>
double sum_of(const T* x, std::size_t n, F f) {
  constexpr std::size_t lanes = 8;
  std::array<double, lanes> sums{};
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (std::size_t j = 0; j < lanes; ++j) sums[j] += f(static_cast<double>(x[i + j]));
  for (std::size_t j = 0; i + j < n; ++j) sums[j] += f(static_cast<double>(x[i + j]));
  double sum = 0;
  for (const double one : sums) sum += one;
  return sum;
}

struct Standardize {
  static constexpr std::string_view name = "per_image_standardization";
  static constexpr bool random = false;
  void check(const Shape&) const {}
  template <class T>
  void operator()(T* image, const Shape& shape) const {
    const std::size_t n = shape.size();
    const double count = static_cast<double>(n);
    const double mean = sum_of(image, n, [](double v) { return v; }) / count;
    const double variance =
        sum_of(image, n, [mean](double v) { return (v - mean) * (v - mean); }) / count;
    const double deviation = std::max(std::sqrt(variance), 1 / std::sqrt(count));
    // Subtracting before scaling maps an image of a single color to exact zeros.
    const T middle = static_cast<T>(mean), scale = static_cast<T>(1 / deviation);
    for (std::size_t i = 0; i < n; ++i) image[i] = (image[i] - middle) * scale;
  }
};

}  // namespace pipeline

/// x' = (x - mean) / max(deviation, 1 / sqrt(size)), with the mean and the standard deviation over
/// all size = height * width * channels numbers of the same image
/// (`tf.image.per_image_standardization`).
/// \throws UsageError, when applied to a source, if the examples are not images.
/// \code
///   auto train = cifar | lockstep::per_image_standardization | lockstep::batch(128);
/// \endcode
inline constexpr auto per_image_standardization =
    pipeline::image_operation(pipeline::Standardize());

}  // namespace lockstep
