/// \file
/// Dot products of two values along an axis of each: merges two branches of Parallel.
#pragma once

#include <cstddef>

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/options.hpp"

namespace lockstep {

/// Axes of two values, counted from 1, since axis 0 is the batch, or from the end by negative
/// numbers.
struct DotAxes {
  int first = -1, second = -1;
  bool operator==(const DotAxes&) const = default;
};
/// Option of Dot: the axis of the first and of the second branch.
constexpr DotAxes axes(int first, int second) { return {first, second}; }

/// Option of Dot: cosines instead of dot products.
struct Normalize {
  bool on = true;
};
inline constexpr Normalize normalize{};

namespace detail {

/// A value as vectors along an axis: element k of vector r is at index(r) + k step.
struct DotRows {
  constexpr DotRows(Shape in, int axis) : length(size(in[axis - 1])) {
    for (int k = axis; k < in.rank; ++k) step *= size(in[k]);
    count = in.size() / length;
  }
  static constexpr std::size_t size(int extent) { return static_cast<std::size_t>(extent); }
  constexpr std::size_t index(std::size_t r) const { return r / step * length * step + r % step; }

  std::size_t length, step = 1, count = 0;
};

/// The extents of `in` without those of `axis`, after those of `before`.
constexpr Shape without_axis(Shape before, Shape in, int axis) {
  for (int k = 0; k < in.rank; ++k)
    if (k != axis - 1 && before.rank < 4)
      before.extent[static_cast<std::size_t>(before.rank++)] = in[k];
  return before;
}

}  // namespace detail

/// y[i.., j..] = sum over k of x[i.., k, ..] x2[j.., k, ..], where k is the index on the axes. With
/// `normalize`, the vectors along the axes are divided by their lengths, or by 1e-7 if they are
/// shorter.
struct DotOp {
  static constexpr std::string_view members = "in .other axes normalize";
  Shape in, other;  // of x and of x2
  DotAxes axes;     // from 1
  bool normalize = false;
  constexpr Shape out() const {
    const Shape rest =
        detail::without_axis(detail::without_axis({}, in, axes.first), other, axes.second);
    return rest.rank == 0 ? shape(1) : rest;
  }
  constexpr detail::DotRows rows() const { return {in, axes.first}; }
  constexpr detail::DotRows other_rows() const { return {other, axes.second}; }
  constexpr double flops() const {
    return 2.0 * static_cast<double>(out().size()) * static_cast<double>(rows().length);
  }
  bool operator==(const DotOp&) const = default;
};

namespace detail {

/// Axes given as one number for both or as ls::axes.
constexpr DotAxes axes_of(int both) { return {both, both}; }
constexpr DotAxes axes_of(DotAxes given) { return given; }

template <DotAxes A, class... Options>
struct CheckDot {
  static_assert(
      A.first != 0 && A.second != 0,
      "lockstep::Dot: axis 0 is the batch; the axes of an example begin with 1, and -1 is "
      "the last");
  static_assert((is_any_of<Options, Normalize> && ...),
                "lockstep::Dot: an option is not supported; it accepts ls::normalize");
};

}  // namespace detail

/// Keras' Dot as a rule that merges two branches, and no more: dot products along the axis `Axes`
/// of both branches, or along those of ls::axes(first, second), which must have equal extents.
/// Input two shapes, output the extents of the first without its axis, then those of the second
/// without its axis; (1) if there are none. Option: ls::normalize, for cosines.
/// \code
///   Parallel<ls::Dot<1>, User, Item>                    // (64) and (64) to (1)
///   Parallel<ls::Dot<-1, ls::normalize>, A, B>          // (5, 8) and (7, 8) to (5, 7), cosines
///   Parallel<ls::Dot<ls::axes(2, 1)>, A, B>             // (5, 8) and (8, 7) to (5, 7)
/// \endcode
template <auto Axes, auto... Options>
struct Dot {
  static constexpr std::string_view name = "dot";
  static constexpr bool accepts(Shape a, Shape b) {
    const DotAxes at = op(a, b).axes;
    return at.first >= 1 && at.first <= a.rank && at.second >= 1 && at.second <= b.rank &&
           a[at.first - 1] == b[at.second - 1] && a.rank + b.rank - 2 <= 4;
  }
  static constexpr DotOp op(Shape a, Shape b) {
    const DotAxes given = detail::axes_of(Axes);
    const auto from_1 = [](int axis, Shape s) {
      return axis < 0 ? axis + s.rank + 1 : axis == 0 ? 1 : axis;  // 0: one error, of CheckDot
    };
    return {a,
            b,
            {from_1(given.first, a), from_1(given.second, b)},
            detail::option<Normalize, Options...>(Normalize{false}).on};
  }

  static_assert(
      sizeof(detail::CheckDot<detail::axes_of(Axes), std::remove_cvref_t<decltype(Options)>...>) >
      0);
};

static_assert(JoinRule<Dot<1>> && Dot<1>::op(shape(5), shape(5)).out() == shape(1) &&
              Dot<axes(2, 1)>::op(shape(5, 8), shape(8, 7)).out() == shape(5, 7) &&
              !Dot<1>::accepts(shape(5), shape(4)));

}  // namespace lockstep
