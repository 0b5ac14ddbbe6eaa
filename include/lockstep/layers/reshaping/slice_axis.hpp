/// \file
/// A range of one axis.
#pragma once

#include <limits>

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/reshaping/rearrangement.hpp"

namespace lockstep {

/// y[.., i, ..] = x[.., begin + i, ..] along `axis`, which counts from 1: axis 0 is the batch.
struct SliceAxisOp {
  static constexpr std::string_view members = "in axis begin end";
  Shape in;
  int axis = 1, begin = 0, end = 1;
  constexpr Shape out() const {
    Shape result = in;
    result.extent[static_cast<std::size_t>(axis - 1)] = end - begin;
    return result;
  }
  constexpr Rearrangement rearrangement() const {
    int outer = 1, inner = 1;
    for (int k = 0; k < in.rank; ++k) (k < axis - 1 ? outer : inner) *= in[k];
    inner /= in[axis - 1];
    return Rearrangement::of({{outer, outer, 0, in[axis - 1] * inner},
                              {end - begin, in[axis - 1], begin, inner},
                              {inner, inner, 0, 1}});
  }
  bool operator==(const SliceAxisOp&) const = default;
};

namespace detail {

/// An axis of Keras, which counts the batch, or from the end: 0 for the batch, and for axes that
/// `in` does not have.
constexpr int axis_of(Shape in, int axis) {
  const int counted = axis < 0 ? axis + in.rank + 1 : axis;
  return counted >= 1 && counted <= in.rank ? counted : 0;
}

template <int Axis>
struct CheckSliceAxis {
  static_assert(
      Axis != 0,
      "lockstep::SliceAxis: axis 0 is the batch, which cannot be cut; the axes of an example "
      "begin with 1, and -1 is the last");
};

}  // namespace detail

/// A range of an axis, like Python's x[:, begin:end]. Axis 1 is the first after the batch, -1 the
/// last. A negative `Begin` or `End` counts from the end of the axis; without `End` the range goes
/// up to it. Keras has no layer of this name. Input of any shape, output with End - Begin steps on
/// this axis, at least one.
/// \code
///   SliceAxis<1, 2, 5>       // x[:, 2:5]
///   SliceAxis<1, -1>         // x[:, -1:], the last step
///   SliceAxis<-1, 0, 3>      // x[..., 0:3], the first three channels
/// \endcode
template <int Axis, int Begin, int End = std::numeric_limits<int>::max()>
struct SliceAxis {
  static constexpr std::string_view name = "slice_axis";
  static constexpr bool accepts(Shape in) {
    const auto [x, axis, begin, end] = op(in);
    return axis > 0 && begin >= 0 && begin < end && end <= in[axis - 1];
  }
  template <Shape In>
  struct Requires {
    static_assert(
        detail::axis_of(In, Axis) != 0 || detail::always_false<SliceAxis>,
        "lockstep::SliceAxis: the input does not have this axis; axis 1 is the first after the batch");
    static_assert(
        detail::axis_of(In, Axis) == 0,
        "lockstep::SliceAxis: the range is empty or is not within the axis; begin must be below end, "
        "and end at most the extent of the axis");
  };
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr SliceAxisOp op(Shape in) {
    const int axis = detail::axis_of(in, Axis == 0 ? 1 : Axis),
              extent = axis == 0 ? 1 : in[axis - 1];
    const int end = End == std::numeric_limits<int>::max() ? extent : End;
    return {in, axis, Begin < 0 ? Begin + extent : Begin, end < 0 ? end + extent : end};
  }

  static_assert(sizeof(detail::CheckSliceAxis<Axis>) > 0);
};

static_assert(Layer<SliceAxis<1, 0>> && Rearranges<SliceAxisOp> &&
              SliceAxis<-2, 1, -1>::op(shape(4, 5, 6)).out() == shape(4, 3, 6) &&
              !SliceAxis<1, 0, 5>::accepts(shape(4, 5, 6)));

}  // namespace lockstep
