#pragma once

#include "lockstep/tensorboard/histogram_buckets.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "lockstep/core/finite.hpp"

namespace lockstep {

std::vector<HistogramBucket> histogram_of(std::span<const float> values, std::size_t buckets) {
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
