/// \file
/// Shape of one example. Invariant: a Shape does not include the batch dimension, which is known at
/// run time only.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"

namespace lockstep {

/// Extents of one example, channels last, rank 0 to 4, or of a parameter, rank 0 to 5.
///
/// A structural aggregate, so it can be a template argument or a member of one.
/// \code
///   static_assert(lockstep::shape(26, 26, 32).size() == 21'632);
/// \endcode
struct Shape {
  int rank = 0;
  std::array<int, 5> extent{1, 1, 1, 1, 1};  ///< extents from `rank` on are 1

  constexpr int operator[](int axis) const { return extent[static_cast<std::size_t>(axis)]; }
  /// Extent of the last axis: channels of an image, units of a vector, 1 for a scalar.
  constexpr int channels() const { return rank == 0 ? 1 : (*this)[rank - 1]; }
  /// Number of elements of one example.
  constexpr std::size_t size() const {
    // Over all axes: g++ 12 -O3 reports a loop up to `rank` as a read of uninitialized
    // extents.
    std::size_t n = 1;
    for (int axis = 0; axis < 5; ++axis)
      n *= axis < rank ? static_cast<std::size_t>((*this)[axis]) : 1;
    return n;
  }
  /// Not defaulted: std::array's comparison is not a constant expression under -D_GLIBCXX_DEBUG.
  constexpr bool operator==(const Shape& other) const {
    for (std::size_t axis = 0; axis < 5; ++axis)
      if (extent[axis] != other.extent[axis]) return false;
    return rank == other.rank;
  }
};

/// Makes a Shape from extents: `shape(28, 28, 1)`.
template <class... Extents>
constexpr Shape shape(Extents... extents) {
  static_assert(sizeof...(Extents) <= 4,
                "lockstep::shape: at most four axes; the batch is not an axis");
  Shape result{static_cast<int>(sizeof...(Extents)), {1, 1, 1, 1, 1}};
  [[maybe_unused]] std::size_t axis = 0;
  if constexpr (sizeof...(Extents) <= 4) ((result.extent[axis++] = static_cast<int>(extents)), ...);
  return result;
}

/// "(26, 26, 32)"; with `batch` as first extent: "(None, 26, 26, 32)".
LOCKSTEP_COLD_DECL std::string to_string(const Shape& s, std::string_view batch = {});

static_assert(shape(28, 28, 1).size() == 784 && shape().size() == 1 &&
              shape(3, 3, 1, 32).channels() == 32 && Shape{2, {3, 4}}.size() == 12);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/shape.ipp"
#endif
