/// \file
/// Position of a random square along one axis of an image, for cutout. Invariant: one draw of
/// `below` per axis, so that the layer and the operation on data have the same geometry.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/core/rng.hpp"

namespace lockstep {

/// The pixels [begin, end).
struct DrawnSpan {
  std::size_t begin = 0, end = 0;
  bool operator==(const DrawnSpan&) const = default;
};

/// Draws the middle m uniformly from the `extent` pixels and returns the `size` pixels from m -
/// size / 2 on, clipped to the image. `extent` and `size` are at least 1.
/// \code
///   const DrawnSpan rows = drawn_span(8, 32, draws), columns = drawn_span(8, 32, draws);
/// \endcode
inline DrawnSpan drawn_span(int size, int extent, Philox& draws) {
  const std::int64_t middle = draws.below(static_cast<std::uint32_t>(extent));
  const std::int64_t begin = middle - size / 2, end = begin + size;
  return {static_cast<std::size_t>(std::max<std::int64_t>(begin, 0)),
          static_cast<std::size_t>(std::min<std::int64_t>(end, extent))};
}

}  // namespace lockstep
