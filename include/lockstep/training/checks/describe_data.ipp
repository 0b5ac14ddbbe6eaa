#pragma once

#include "lockstep/training/checks/describe_data.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/finite.hpp"
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

/// One field of the sampled examples, as read twice.
struct FieldDigests {
  struct Read {
    std::uint64_t labels = 0;
    RoundedDigest numbers{};
    std::uint64_t value() const { return mix(labels, numbers.value()); }
  };
  std::array<Read, 2> read{};
  std::string first_labels{};

  template <class V>
  void add(std::size_t i, const std::byte* p, std::size_t count) {
    const std::span<const V> values(reinterpret_cast<const V*>(p), count);
    for (const V v : values)
      if constexpr (std::is_integral_v<V>)
        read[i].labels = mix(read[i].labels, static_cast<std::uint64_t>(v));
      else
        read[i].numbers.add(static_cast<double>(v));
  }
  std::string text() const {
    if (read[0].value() != read[1].value()) return std::string(varying_contents);
    return format_text("{}digest {:016x}", first_labels, read[0].value());
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

template <class T>
[[gnu::cold]] void read_sample(ExampleSource<T>& source, const BatchSizes& sizes,
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

  constexpr std::size_t each = 3;  // examples in memory at a time
  std::vector<FieldDigests> digests(sizes.fields.size());
  std::vector<AlignedBuffer> values(sizes.fields.size());
  std::vector<void*> to_values;
  for (std::size_t f = 0; f < values.size(); ++f)
    to_values.push_back(values[f].reserve(each * sizes.fields[f].shape.size() *
                                          bytes_of_element<T>(sizes.fields[f].type)));
  for (std::span<const Item> rest(sample); !rest.empty();) {
    const std::span<const Item> now = rest.first(std::min(each, rest.size()));
    rest = rest.subspan(now.size());
    for (std::size_t i = 0; i < 2; ++i) {
      source.gather(pass, now, to_values);
      for (std::size_t f = 0; f < values.size(); ++f) {
        const std::size_t size = sizes.fields[f].shape.size(), count = now.size() * size;
        if (sizes.fields[f].type == FieldType::real) {
          digests[f].add<T>(i, values[f].data(), count);
          continue;
        }
        digests[f].add<std::int32_t>(i, values[f].data(), count);
        if (rest.size() + now.size() == sample.size() && i == 1) {
          const auto* const labels = reinterpret_cast<const std::int32_t*>(values[f].data());
          for (std::size_t k = 0; k < now.size(); ++k)
            digests[f].first_labels += std::to_string(labels[k * size]) + ", ";
          digests[f].first_labels += "..., ";
        }
      }
    }
  }
  for (std::size_t f = 0; f < digests.size(); ++f)
    to.contents.push_back({sizes.fields[f].role, digests[f].text()});
}

void add_contents(Signature& to, const DescribedData& data, std::string_view of, bool all) {
  constexpr std::array<std::string_view, 3> plural{"features", "targets", "weights"};
  for (const auto& [role, value] : data.contents) {
    if (!all && role != FieldRole::feature) continue;
    const bool is_compared = !data.is_generated || value == varying_contents;
    to.emplace_back(format_text("{} of {}", plural[static_cast<std::size_t>(role)], of),
                    is_compared ? value : std::string(generated_contents));
    if (is_compared) continue;
    if (to.front().first != generated_field) to.emplace(to.begin(), generated_field, "");
    to.front().second += value + "; ";
  }
}

#ifdef LOCKSTEP_SEPARATE_COMPILATION
template void read_sample(ExampleSource<float>&, const BatchSizes&, std::uint64_t, DescribedData&);
template void read_sample(ExampleSource<double>&, const BatchSizes&, std::uint64_t, DescribedData&);
#endif

}  // namespace lockstep::detail
