/// \file
/// Slices of a batch. Invariants: the slices of a batch are contiguous, in order, cover it exactly,
/// and differ in size by at most one, the larger ones first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep {

/// `count` examples or elements starting at `first`. May be empty.
struct Slice {
  std::size_t first = 0, count = 0;
  constexpr bool contains(std::size_t i) const { return i >= first && i - first < count; }
  bool operator==(const Slice&) const = default;
};

/// Part `index` of `total` examples divided into `parts`.
/// \code
///   // 61 examples on 3 replicas: 21, 20, 20
///   static_assert(lockstep::slice_of(61, 3, 1) == lockstep::Slice{21, 20});
/// \endcode
constexpr Slice slice_of(std::size_t total, std::size_t parts, std::size_t index) {
  const std::size_t floor = total / parts, larger = total % parts;
  return {index * floor + std::min(index, larger), floor + (index < larger ? 1u : 0u)};
}

static_assert(slice_of(61, 3, 0) == Slice{0, 21} && slice_of(61, 3, 1) == Slice{21, 20} &&
              slice_of(2, 3, 2) == Slice{2, 0});

/// A range of examples of a global batch, passed from the loader down to the kernels.
struct BatchSlice {
  std::size_t first = 0, count = 0;  ///< range of examples within the global batch
  std::size_t global_count = 0;      ///< number of examples in the global batch
  std::uint64_t pass = 0;            ///< number of the pass over the data
  std::uint64_t first_ordinal = 0;   ///< ordinal of the first example in the pass; see Item
  bool operator==(const BatchSlice&) const = default;

  /// Another range of the same batch.
  constexpr BatchSlice with(Slice rows) const {
    return {rows.first, rows.count, global_count, pass, first_ordinal + rows.first - first};
  }
};

/// The range that covers a whole batch.
constexpr BatchSlice whole_batch(std::size_t count, std::uint64_t pass = 0,
                                 std::uint64_t first_ordinal = 0) {
  return {0, count, count, pass, first_ordinal};
}

static_assert(whole_batch(61, 2, 610).with(slice_of(61, 3, 1)) == BatchSlice{21, 20, 61, 2, 631} &&
              whole_batch(61).with({21, 40}).with({41, 20}) == BatchSlice{41, 20, 61, 0, 41});

}  // namespace lockstep
