/// \file
/// How a batch is cut. Invariant: the slices of one batch are contiguous, in order, cover it
/// exactly, and differ in size by at most one, the larger ones first.
#pragma once

#include <algorithm>
#include <cstddef>

namespace lockstep {

/// `count` examples from `first` on. May be empty.
struct Slice {
  std::size_t first = 0, count = 0;
  bool operator==(const Slice&) const = default;
};

/// The part of `total` examples that falls to `index` of `parts`.
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

}  // namespace lockstep
