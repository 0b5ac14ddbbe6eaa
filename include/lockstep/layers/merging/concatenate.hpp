/// \file
/// Concatenation of values along an axis: merges the branches of Parallel.
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>

#include "lockstep/concepts/layer.hpp"

namespace lockstep {

/// y = x[0], then x[1], ..., along an axis: y[.., k, ..] = x[0][.., k, ..] for k below the extent of
/// x[0] there.
struct ConcatenateOp {
  static constexpr std::string_view members = "in .other axis ?.further";
  Shape in;         // shape of x[0]
  int other = 1;    // extent of all others on the axis; their other extents equal those of x[0]
  int axis = -1;    // from 1, since axis 0 is the batch; negative: from the end
  int further = 1;  // operands after the first
  constexpr Shape out() const {
    Shape result = in;
    result.extent[static_cast<std::size_t>(place())] += other;
    return result;
  }
  constexpr std::size_t operands() const { return static_cast<std::size_t>(further) + 1; }
  /// The index of the axis in shapes.
  constexpr int place() const { return axis < 0 ? in.rank + axis : axis - 1; }
  /// Rows along the axis in one example: elements of a row of operand i are io.x_size[i] / rows().
  constexpr std::size_t rows() const {
    std::size_t result = 1;
    for (int k = 0; k < place(); ++k) result *= static_cast<std::size_t>(in[k]);
    return result;
  }
  bool operator==(const ConcatenateOp&) const = default;
};

namespace merging {  // where both names are Keras'

/// Keras' Concatenate along an axis, as a rule that merges two branches or more. Input shapes that are
/// equal except on this axis, output the same with the sum of their extents there.
template <int Axis>
struct Concatenate {
  static_assert(Axis != 0,
                "lockstep::Concatenate: axis 0 is the batch; the axes of an example begin with 1, "
                "and -1 is the last");

  static constexpr int axis = Axis == 0 ? 1 : Axis;  // 0: one error

  static constexpr std::string_view name = "concatenate";
  static constexpr bool supports_masking = true;
  static constexpr bool joins_steps(Shape first) {
    return ConcatenateOp{first, 0, axis}.place() == 0;
  }
  static constexpr bool accepts(Shape first, Shape second, std::same_as<Shape> auto... more) {
    return fits(first, second) && (fits(first, more) && ...);
  }
  static constexpr ConcatenateOp op(Shape first, Shape second, std::same_as<Shape> auto... more) {
    const ConcatenateOp one{first, 0, axis};
    if (one.place() < 0 || one.place() >= first.rank) return one;  // for types alone
    const int place = one.place();
    return {first, (second[place] + ... + more[place]), axis,
            static_cast<int>(sizeof...(more)) + 1};
  }

 private:
  static constexpr bool fits(Shape a, Shape b) {
    const int place = ConcatenateOp{a, 0, axis}.place();
    if (place < 0 || place >= a.rank || a.rank != b.rank) return false;
    for (int k = 0; k < a.rank; ++k)
      if (k != place && a[k] != b[k]) return false;
    return true;
  }
};

}  // namespace merging

/// Keras' Concatenate along the last axis. Input (.., a), (.., b), ..., output (.., a + b + ...).
using Concatenate = merging::Concatenate<-1>;
/// The same along another axis, counted from 1, since axis 0 is the batch, or from the end by
/// negative numbers. Input shapes that are equal except on this axis.
/// \code
///   Parallel<ls::ConcatenateOn<1>, A, B>      // (5, 8) and (7, 8) to (12, 8)
/// \endcode
template <int Axis>
using ConcatenateOn = merging::Concatenate<Axis>;

static_assert(LayerOf<Concatenate, 2> && LayerOf<Concatenate, 5> &&
              Concatenate::op(shape(4, 4, 3), shape(4, 4, 5)).out() == shape(4, 4, 8) &&
              ConcatenateOn<1>::op(shape(5, 8), shape(7, 8), shape(1, 8)).out() == shape(13, 8) &&
              !ConcatenateOn<2>::accepts(shape(5, 8), shape(7, 8)));

}  // namespace lockstep
