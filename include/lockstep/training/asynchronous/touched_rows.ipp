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

void PlacedRows::place(std::span<const RowTable> tables, std::size_t weights, std::size_t size,
                       bool others) {
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  // A row that one of the tables lacks: its layer refuses the batch.
  for (const RowTable& table : tables)
    rows.erase(std::lower_bound(rows.begin(), rows.end(), table.rows), rows.end());
  touched.clear();
  places.clear();
  used.clear();
  const auto join = [](std::vector<Slice>& to, Slice next) {
    if (to.empty() || to.back().first + to.back().count != next.first) return false;
    to.back().count += next.count;
    return true;
  };
  const auto add = [&](std::size_t from, std::size_t place, std::size_t count) {
    if (count == 0) return;
    if (!join(used, {place, count})) used.push_back({place, count});
    const Slice whole{from * size, count * size}, here{place * size, count * size};
    if (!touched.empty() && touched.back().first + touched.back().count == whole.first &&
        join(places, here)) {
      touched.back().count += whole.count;
    } else {
      touched.push_back(whole);
      places.push_back(here);
    }
  };
  std::size_t at = 0;
  for (const RowTable& table : tables) {
    if (others) add(at, at, table.first - at);
    for (std::size_t i = 0; i < rows.size(); ++i)
      add(table.first + rows[i] * table.width, table.first + i * table.width, table.width);
    at = table.first + table.rows * table.width;
  }
  if (others) add(at, at, weights - at);
}

void touched_within(const PlacedRows& rows, std::span<const Slice> ranges,
                    std::vector<Slice>& parts, std::vector<Slice>& places) {
  parts.clear();
  places.clear();
  for (const Slice& range : ranges)
    for (std::size_t i = 0; i < rows.touched.size(); ++i) {
      const Slice& slice = rows.touched[i];
      const std::size_t first = std::max(slice.first, range.first);
      const std::size_t end = std::min(slice.first + slice.count, range.first + range.count);
      if (first >= end) continue;
      parts.push_back({first, end - first});
      places.push_back({rows.places[i].first + (first - slice.first), end - first});
    }
  if (parts.empty()) parts.push_back({}), places.push_back({});
}

}  // namespace lockstep::detail
