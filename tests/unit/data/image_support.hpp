/// \file
/// Images for the tests of image operations: random bytes, with the number of the image as label.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/core/rng.hpp"
#include "unit/data/support.hpp"

namespace support {

/// `count` images of `shape` with bytes of at least 1, so that padding and holes can be recognized.
inline auto images(std::size_t count, lockstep::Shape shape) {
  std::vector<std::uint8_t> x(count * shape.size());
  lockstep::Philox draws(42);
  for (auto& byte : x) byte = static_cast<std::uint8_t>(1 + draws.below(255));
  std::vector<std::int32_t> y(count);
  std::iota(y.begin(), y.end(), 0);
  return lockstep::tensors(x, shape, y);
}

/// The value [row, column, channel] of image n in a batch of images of `shape`.
template <class T>
T pixel(const std::vector<T>& x, lockstep::Shape shape, std::size_t n, int row, int column,
        int channel) {
  const int place = (row * shape[1] + column) * shape[2] + channel;
  return x[n * shape.size() + static_cast<std::size_t>(place)];
}

/// Chi-squared statistic, sum of (seen - expected)^2 / expected: below 2 * cells for uniform draws
/// (for 2 to 81 cells, exceeded once in a thousand runs).
inline double chi_squared(const std::vector<int>& seen) {
  double total = 0, sum = 0;
  for (const int n : seen) total += n;
  const double expected = total / static_cast<double>(seen.size());
  for (const int n : seen) sum += (n - expected) * (n - expected) / expected;
  return sum;
}

}  // namespace support
