/// \file
/// Reshape: the same elements with another shape.
#pragma once

#include "lockstep/layers/reshaping/flatten.hpp"

namespace lockstep {
namespace detail {

/// `target` with its extent -1, if any, replaced by the extent that makes the sizes equal; 0 if no
/// extent does.
constexpr Shape reshaped(Shape in, Shape target) {
  std::size_t fixed = 1;
  int wildcard = -1;
  for (int axis = 0; axis < target.rank; ++axis) {
    if (target[axis] == -1 && wildcard < 0)
      wildcard = axis;
    else
      fixed *= target[axis] > 0 ? static_cast<std::size_t>(target[axis]) : 0;
  }
  if (wildcard >= 0)
    target.extent[static_cast<std::size_t>(wildcard)] =
        fixed > 0 && in.size() % fixed == 0 ? static_cast<int>(in.size() / fixed) : 0;
  return target;
}

}  // namespace detail

/// Keras' Reshape. Input of any shape, output `Target`, which must have as many elements. Moves no
/// data; one extent of `Target` may be -1 and is inferred.
/// \code
///   Reshape<ls::shape(7, 7, 64)>, Reshape<ls::shape(-1, 64)>
/// \endcode
template <Shape Target>
struct Reshape {
  static constexpr std::string_view name = "reshape";
  static constexpr bool accepts(Shape in) {
    const Shape to = detail::reshaped(in, Target);
    return to.size() == in.size() && to.size() > 0;
  }
  template <Shape In>
  struct Requires {
    static_assert(
        accepts(In),
        "lockstep::Reshape: input and target shape differ in their number of elements; make the "
        "products equal, or write -1 for one extent");
  };
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr ViewOp op(Shape in) { return {in, detail::reshaped(in, Target)}; }
};

static_assert(Layer<Reshape<shape(-1, 4)>> &&
              Reshape<shape(-1, 4)>::op(shape(6, 2)).out() == shape(3, 4) &&
              !Reshape<shape(-1, 5)>::accepts(shape(6, 2)));

}  // namespace lockstep
