#pragma once

#include "lockstep/tensorboard/histogram.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "lockstep/core/finite.hpp"

namespace lockstep {

std::vector<HistogramBucket> histogram_of(std::span<const float> values, std::size_t buckets) {
  if (buckets == 0) throw UsageError("histogram: buckets is 0; it must be at least 1");
  double least = 0, most = 0, count = 0;
  for (const float v : values) {
    if (!detail::is_finite(v)) continue;
    least = count == 0 ? v : std::min(least, static_cast<double>(v));
    most = count == 0 ? v : std::max(most, static_cast<double>(v));
    ++count;
  }
  if (count == 0) return {};
  if (least == most) return {{least - 0.5, least + 0.5, count}};
  const double width = (most - least) / static_cast<double>(buckets);
  std::vector<HistogramBucket> result(buckets);
  for (std::size_t i = 0; i < buckets; ++i) {
    result[i].left = least + width * static_cast<double>(i);
    result[i].right = i + 1 == buckets ? most : least + width * static_cast<double>(i + 1);
  }
  for (const float v : values)
    if (detail::is_finite(v))
      ++result[std::min(static_cast<std::size_t>((v - least) / width), buckets - 1)].count;
  return result;
}

}  // namespace lockstep
