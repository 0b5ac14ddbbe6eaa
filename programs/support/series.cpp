#include "support/series.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <lockstep/core/error.hpp>
#include <lockstep/core/numbers/finite.hpp>
#include <lockstep/core/rng.hpp>
#include <lockstep/data/sources/csv.hpp>

namespace support {

namespace ls = lockstep;

std::vector<double> drawn_series(std::uint64_t seed) {
  ls::Philox random(ls::mix(seed, ls::hash_name("series")));
  const double day = random.uniform(), week = random.uniform();
  std::vector<double> series;
  for (int hour = 0; hour < 3'000; ++hour) {
    const auto wave = [hour](double period, double phase) {
      return std::sin(2 * std::numbers::pi * (hour / period + phase));
    };
    series.push_back(20 + 0.001 * hour + 5 * wave(24, day) + 2 * wave(168, week) +
                     0.3 * random.normal());
  }
  return series;
}

std::vector<double> read_series(const std::string& path) {
  const auto bytes = ls::detail::read_whole(path);
  ls::detail::CsvFields lines(ls::detail::csv_text(bytes), path, ',');
  std::vector<std::string_view> fields;
  if (!lines.next_line(fields))
    throw ls::DataError(path, "is empty; begin with a line that names the columns");
  const std::size_t columns = fields.size();
  const std::string name(ls::detail::csv_trimmed(fields.back()));
  if (ls::detail::csv_number<double>(name))
    lines.refuse(lines.line(), columns, {},
                 fmt::format("'{}' is a number; begin with a line that names the columns", name));
  std::vector<double> series;
  while (lines.next_line(fields)) {
    if (fields.size() != columns)
      lines.refuse(
          lines.line(), std::min(fields.size(), columns), {},
          fmt::format(
              "the line has {} columns, but the first has {}; give every line the same number",
              fields.size(), columns));
    const std::string_view field = ls::detail::csv_trimmed(fields.back());
    const auto value = ls::detail::csv_number<double>(field);
    if (!value || !ls::detail::is_finite(*value))
      lines.refuse(lines.line(), columns, name,
                   fmt::format("'{}' is not a finite number; correct the line", field));
    series.push_back(*value);
  }
  return series;
}

Windows Windows::of(const std::vector<double>& series, int steps, const std::string& name) {
  const auto length = static_cast<std::size_t>(steps);
  const std::size_t split = series.size() * 4 / 5;
  if (split <= length)
    throw ls::Error("{} has {} values, but windows of {} need at least {}", name, series.size(),
                    length, (length + 1) * 5 / 4 + 1);
  const std::span first(series.data(), split);
  if (std::ranges::count(first, first[0]) == std::ssize(first))
    throw ls::Error("{} is constant in its first {} values; there is nothing to forecast", name,
                    split);
  double mean = 0, square = 0;
  for (const double value : first) mean += value / static_cast<double>(split);
  for (const double value : first)
    square += (value - mean) * (value - mean) / static_cast<double>(split);
  const double deviation = std::sqrt(square);
  const auto windows = [&](std::size_t from, std::size_t to) {  // of the targets
    std::vector<float> x, y;
    const auto scaled = [&](std::size_t i) {
      return static_cast<float>((series[i] - mean) / deviation);
    };
    for (std::size_t i = from; i < to; ++i) {
      for (std::size_t k = i - length; k < i; ++k) x.push_back(scaled(k));
      y.push_back(scaled(i));
    }
    return ls::tensors(std::move(x), ls::shape(steps, 1), std::move(y), ls::shape(1));
  };
  double naive = 0;
  for (std::size_t i = split; i < series.size(); ++i)
    naive += (series[i] - series[i - 1]) * (series[i] - series[i - 1]);
  return {.parts = {windows(length, split), windows(split, series.size())},
          .deviation = deviation,
          .naive_error = naive / static_cast<double>(series.size() - split)};
}

void print_errors(const Options& options, const Windows& windows, double scaled_error) {
  using lockstep::ProgressStyle;
  if (options.progress == ProgressStyle::none || options.progress == ProgressStyle::json) return;
  fmt::print(
      "\nmean squared error on the last {} values: {:.4f}; of the last value as forecast: {:.4f}\n",
      *windows.parts.test.size(), scaled_error * windows.deviation * windows.deviation,
      windows.naive_error);
  std::fflush(stdout);
}

}  // namespace support
