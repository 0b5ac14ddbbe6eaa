/// \file
/// The histogram of a tensor's values, with TensorFlow's buckets. Invariants: the counts add up to
/// the number of finite values; adjacent buckets share their limit.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/core/config.hpp"

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
LOCKSTEP_COLD_DECL std::vector<HistogramBucket> histogram_of(std::span<const float> values,
                                                             std::size_t buckets = 30);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/tensorboard/histogram_buckets.ipp"
#endif
