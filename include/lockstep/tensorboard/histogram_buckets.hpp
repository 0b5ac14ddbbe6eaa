/// \file
/// The histogram of a tensor's values, with TensorFlow's buckets. Invariants: the counts add up to
/// the number of finite values; adjacent buckets share their limit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/finite.hpp"

namespace lockstep {

/// The values in [left, right), and in the last bucket also `right`.
struct HistogramBucket {
  double left, right, count;
  friend bool operator==(const HistogramBucket&, const HistogramBucket&) = default;
};

/// The finite values in `buckets` buckets of equal width from the least to the largest value. If
/// all values are equal, all buckets are [v, v], and the last one has the count; without finite
/// values all limits and counts are 0. Source: tensorboard/plugins/histogram/summary_v2.py.
/// \throws UsageError if `buckets` is 0.
/// \code
///   ls::histogram_of(std::vector{0.0f, 1.0f, 1.0f}, 2);  // {0, 0.5, 1}, {0.5, 1, 2}
/// \endcode
[[gnu::cold]] inline std::vector<HistogramBucket> histogram_of(std::span<const float> values,
                                                               std::size_t buckets = 30) {
  if (buckets == 0) throw UsageError("histogram: buckets is 0; it must be at least 1");
  double least = 0, most = 0, count = 0;
  for (const float value : values) {
    if (!detail::is_finite(value)) continue;
    const double v = static_cast<double>(value);
    least = count == 0 ? v : std::min(least, v);
    most = count == 0 ? v : std::max(most, v);
    ++count;
  }
  std::vector<HistogramBucket> result(buckets, HistogramBucket{least, least, 0});
  if (least == most) {
    result.back().count = count;
    return result;
  }
  const double width = (most - least) / static_cast<double>(buckets);
  for (std::size_t i = 0; i < buckets; ++i) {
    result[i].left = least + width * static_cast<double>(i);
    result[i].right = i + 1 == buckets ? most : least + width * static_cast<double>(i + 1);
  }
  for (const float v : values)
    if (detail::is_finite(v)) {
      const auto i = static_cast<std::size_t>((static_cast<double>(v) - least) / width);
      ++result[std::min(i, buckets - 1)].count;
    }
  return result;
}

}  // namespace lockstep
