/// \file
/// Where a square that is blotted out lies along one axis of an image. Invariant: one draw of
/// `below` for each axis, so that the layer and the operation on data have the same geometry.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/core/rng.hpp"

namespace lockstep {

/// Pixels from `begin` on, before `end`.
struct DrawnSpan {
  std::size_t begin = 0, end = 0;
  bool operator==(const DrawnSpan&) const = default;
};

/// With middle m, any of the `extent` pixels and each equally likely: `size` pixels from
/// m - size / 2 on, of which those inside. `extent` and `size` are at least 1.
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
