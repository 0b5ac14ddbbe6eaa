/// \file
/// The parts of bytes that members of a group work on. Invariant: they are those of slice_of, in cache
/// lines.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

/// Part `index` of `bytes` divided into `parts`: whole cache lines, so that each part is aligned as
/// the first, and no two members write to the same line.
inline Slice line_slice(std::size_t bytes, std::size_t parts, std::size_t index) {
  constexpr std::size_t line = 64;
  const Slice lines = slice_of((bytes + line - 1) / line, parts, index);
  const std::size_t first = std::min(bytes, lines.first * line);
  return {first, std::min(bytes, (lines.first + lines.count) * line) - first};
}

}  // namespace lockstep::detail
