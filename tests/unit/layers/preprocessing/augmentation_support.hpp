/// \file
/// Shared by the tests of augmentation layers.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <vector>

#include "lockstep/core/rng.hpp"
#include "lockstep/layers/layers.hpp"
#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace augmented {

namespace ls = lockstep;

/// The image of record_augmentation.py, repeated `count` times.
inline std::vector<double> recorded_image(ls::Shape in, std::size_t count = 1) {
  std::vector<double> x(count * in.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<double>(37 * (i % in.size()) % 101) / 10;
  return x;
}

template <class T, class Op>
std::vector<T> forward(const Op& op, const std::vector<double>& x,
                       const testing::RunOptions<T>& options = {}) {
  const std::size_t count = x.size() / op.in.size();
  const std::vector<T> nothing(count * op.out().size());
  return testing::run_layer<ls::Reference<T>>(op, count, testing::as<T>(x), {}, nothing, options).y;
}

/// The random stream of example `ordinal` for these options.
inline ls::Philox draws_of(const testing::RunOptions<double>& options, std::uint64_t ordinal) {
  return ls::Philox(ls::mix(ls::mix(options.seed, options.key), options.pass), ordinal);
}

/// Rows `n` of `values`, which has `count` rows.
template <class T>
std::vector<T> row(const std::vector<T>& values, std::size_t n, std::size_t count) {
  const std::size_t size = values.size() / count;
  const auto from = values.begin() + static_cast<std::ptrdiff_t>(n * size);
  return {from, from + static_cast<std::ptrdiff_t>(size)};
}

/// Chi-squared statistic, sum of (seen - expected)^2 / expected, for equally likely cells.
inline double chi_squared(const std::vector<int>& seen) {
  double total = 0, sum = 0;
  for (const int n : seen) total += n;
  const double expected = total / static_cast<double>(seen.size());
  for (const int n : seen) sum += (n - expected) * (n - expected) / expected;
  return sum;
}

}  // namespace augmented
