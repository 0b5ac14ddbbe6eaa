#pragma once

#include "lockstep/training/checks/describe_data.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "lockstep/core/finite.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/rng.hpp"

namespace lockstep::detail {

void RoundedDigest::add(double value) {
  const std::uint64_t drawn = mix(count_, 0);
  if (!is_finite(value) || std::abs(value) > 1e290) {
    not_finite_ = mix(not_finite_, count_);
    value = 0;
  }
  ++count_;
  magnitude_ += std::abs(value);
  for (unsigned i = 0; i < sums_.size(); ++i)
    sums_[i] += value * static_cast<std::int16_t>(drawn >> (16 * i));
}

std::uint64_t RoundedDigest::value() const {
  std::uint64_t result = mix(count_, not_finite_);
  if (magnitude_ == 0) return result;
  const int grid = std::ilogb(magnitude_) + 15 - 18;
  for (const double sum : sums_)
    result = mix(result, static_cast<std::uint64_t>(std::llrint(std::ldexp(sum, -grid))));
  return result;
}

/// One field of the sampled examples, as read once.
template <class V>
struct FieldDigest {
  std::uint64_t labels = 0;
  RoundedDigest numbers{};
  void add(std::span<const V> values) {
    for (const V v : values)
      if constexpr (std::is_integral_v<V>)
        labels = mix(labels, static_cast<std::uint64_t>(v));
      else
        numbers.add(static_cast<double>(v));
  }
  std::uint64_t value() const { return mix(labels, numbers.value()); }
};

/// The same as read twice.
template <class V>
struct FieldDigests {
  std::array<FieldDigest<V>, 2> read{};
  std::string text(std::string_view first = {}) const {
    if (read[0].value() != read[1].value()) return std::string(varying_contents);
    return format_text("{}digest {:016x}", first, read[0].value());
  }
};

/// Positions of the sampled examples within a pass, ascending.
[[gnu::cold]] inline std::vector<std::uint64_t> sampled_positions(std::uint64_t examples,
                                                                  std::uint64_t batch) {
  constexpr std::uint64_t most_batches = 16;
  std::vector<std::uint64_t> result;
  const std::uint64_t batches = examples / batch + (examples % batch != 0 ? 1 : 0);
  const std::uint64_t sampled = std::min(batches, most_batches);
  for (std::uint64_t i = 0; i < sampled; ++i) {
    const std::uint64_t first = (sampled == 1 ? 0 : i * (batches - 1) / (sampled - 1)) * batch;
    const std::uint64_t count = std::min(batch, examples - first);
    for (const std::uint64_t place : {std::uint64_t{0}, count / 2, count - 1})
      if (result.empty() || result.back() < first + place) result.push_back(first + place);
  }
  return result;
}

template <class T, class Target>
[[gnu::cold]] void read_sample(ExampleSource<T, Target>& source, const BatchSizes& sizes,
                               std::uint64_t examples, DescribedData& to) {
  const Pass pass{};
  source.begin(pass, 0);
  const std::vector<std::uint64_t> positions = sampled_positions(examples, sizes.batch);
  constexpr std::uint64_t hashed = 64, chunk = 4096;
  const std::uint64_t last = std::max(hashed, positions.empty() ? 0 : positions.back() + 1);
  std::vector<Item> items, sample;
  auto position = positions.begin();
  for (std::uint64_t ordinal = 0; ordinal < last;) {
    items.clear();
    const std::uint64_t begin = ordinal;
    source.append_items(static_cast<std::size_t>(std::min(chunk, last - ordinal)), items, ordinal);
    if (items.empty()) break;
    for (const Item& item : items) {
      if (item.ordinal < hashed) to.order = mix(to.order, item.index);
      if (item.ordinal < 4) to.first += std::to_string(item.index) + ", ";
      if (item.ordinal == 4) to.first += "..., ";
    }
    for (; position != positions.end() && *position < ordinal; ++position)
      sample.push_back(items[static_cast<std::size_t>(*position - begin)]);
  }

  FieldDigests<T> features, weights;
  FieldDigests<Target> targets;
  std::string labels;
  constexpr std::size_t each = 3;  // examples in memory at a time
  std::vector<T> x(each * sizes.x), w(each);
  std::vector<Target> y(each * sizes.y);
  for (std::span<const Item> rest(sample); !rest.empty();) {
    const std::span<const Item> now = rest.first(std::min(each, rest.size()));
    rest = rest.subspan(now.size());
    for (std::size_t i = 0; i < 2; ++i) {
      source.gather(pass, now, x.data(), y.data());
      features.read[i].add(std::span<const T>(x).first(now.size() * sizes.x));
      targets.read[i].add(std::span<const Target>(y).first(now.size() * sizes.y));
      if (!sizes.is_weighted) continue;
      std::fill(w.begin(), w.end(), T(1));
      source.weigh(now, w.data());
      weights.read[i].add(std::span<const T>(w).first(now.size()));
    }
    if constexpr (std::is_integral_v<Target>)
      if (labels.empty())
        for (std::size_t i = 0; i < now.size(); ++i)
          labels += std::to_string(y[i * sizes.y]) + ", ";
  }
  to.contents = {features.text(), targets.text(labels.empty() ? labels : labels + "..., "),
                 sizes.is_weighted ? weights.text() : std::string()};
}

void add_contents(Signature& to, const DescribedData& data, std::string_view of, bool all) {
  const auto add = [&](const char* what, const std::string& value) {
    if (value.empty()) return;
    const bool is_compared = !data.is_generated || value == varying_contents;
    to.emplace_back(format_text("{} of {}", what, of),
                    is_compared ? value : std::string(generated_contents));
    if (!is_compared) {
      if (to.empty() || to.front().first != generated_field)
        to.emplace(to.begin(), generated_field, "");
      to.front().second += value + "; ";
    }
  };
  add("features", data.contents.features);
  if (!all) return;
  add("targets", data.contents.targets);
  add("weights", data.contents.weights);
}

#ifdef LOCKSTEP_SEPARATE_COMPILATION
template void read_sample(ExampleSource<float, float>&, const BatchSizes&, std::uint64_t,
                          DescribedData&);
template void read_sample(ExampleSource<float, std::int32_t>&, const BatchSizes&, std::uint64_t,
                          DescribedData&);
template void read_sample(ExampleSource<double, double>&, const BatchSizes&, std::uint64_t,
                          DescribedData&);
template void read_sample(ExampleSource<double, std::int32_t>&, const BatchSizes&, std::uint64_t,
                          DescribedData&);
#endif

}  // namespace lockstep::detail
