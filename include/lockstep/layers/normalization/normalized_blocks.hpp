/// \file
/// The blocks of a normalization: the elements that share their statistics.
#pragma once

#include <cstddef>

namespace lockstep {

/// A tensor (.., rows, groups, channels) without the batch, normalized in blocks of `rows` times
/// `channels` elements. A layer over the last axis has one row and one group, group normalization as
/// many rows as there are pixels.
///
///     row 0   | block 0: channels | block 1 | ..     groups blocks side by side
///     row 1   | block 0           | block 1 | ..
struct NormalizedBlocks {
  std::size_t rows = 1, groups = 1, channels = 1;

  constexpr std::size_t size() const { return rows * channels; }
  /// Distance between two rows of a block.
  constexpr std::size_t stride() const { return groups * channels; }
  /// Where block b begins in the batch, and its first channel.
  constexpr std::size_t begin(std::size_t b) const {
    return b / groups * rows * stride() + first_channel(b);
  }
  constexpr std::size_t first_channel(std::size_t b) const { return b % groups * channels; }
};

}  // namespace lockstep
