#pragma once

#include "lockstep/training/asynchronous/touched_rows.hpp"

namespace lockstep::detail {

void touched_weights(std::span<const RowTable> tables, std::size_t weights,
                     std::vector<std::size_t>& rows, std::vector<Slice>& touched) {
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  touched.clear();
  const auto add = [&](std::size_t first, std::size_t count) {
    if (count == 0) return;
    if (!touched.empty() && touched.back().first + touched.back().count == first)
      touched.back().count += count;
    else
      touched.push_back({first, count});
  };
  std::size_t at = 0;
  for (const RowTable& table : tables) {
    add(at, table.first - at);
    for (const std::size_t row : rows)
      if (row < table.rows) add(table.first + row * table.width, table.width);
    at = table.first + table.rows * table.width;
  }
  add(at, weights - at);
}

void touched_within(std::span<const Slice> touched, std::span<const Slice> ranges,
                    std::vector<Slice>& parts) {
  parts.clear();
  for (const Slice& range : ranges)
    for (const Slice& slice : touched) {
      const std::size_t first = std::max(slice.first, range.first);
      const std::size_t end = std::min(slice.first + slice.count, range.first + range.count);
      if (first < end) parts.push_back({first, end - first});
    }
  if (parts.empty()) parts.push_back({});
}

}  // namespace lockstep::detail
