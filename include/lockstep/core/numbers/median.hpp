/// \file
/// The median.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep::detail {

/// The median of `values`, which must not be empty: the middle one, or the mean of the two middle
/// ones.
[[gnu::cold]] inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

}  // namespace lockstep::detail
