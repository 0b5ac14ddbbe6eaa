/// \file
/// Cropping of steps.
#pragma once

#include "lockstep/layers/along_steps.hpp"
#include "lockstep/layers/reshaping/cropping2d.hpp"

namespace lockstep {
namespace detail {
template <int Before, int After>
struct CheckCropping1D {
  static_assert(Before >= 0 && After >= 0,
                "lockstep::Cropping1D: the cropping of each side must be at least 0; write "
                "Cropping1D<1> or Cropping1D<before, after>");
};
}  // namespace detail

/// Keras' Cropping1D: x without its first `Before` and its last `After` steps. Input (steps, c),
/// output (steps - Before - After, c), at least one step.
/// \code
///   Cropping1D<>          // 1 on each side
///   Cropping1D<0, 2>      // without the last two steps
/// \endcode
template <int Before = 1, int After = Before>
struct Cropping1D {
  static constexpr std::string_view name = "cropping1d";
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 2 || detail::always_false<Cropping1D>,
        "lockstep::Cropping1D: the input does not have steps and channels; put it before Flatten");
    static_assert(In.rank != 2,
                  "lockstep::Cropping1D: nothing is left of the input; crop fewer steps");
  };
  static constexpr bool accepts(Shape in) { return in.rank == 2 && in[0] - Before - After > 0; }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr AlongSteps<Cropping2DOp> op(Shape in) {
    return {{detail::as_row(in), {0, 0, Before, After}}};
  }

  static_assert(sizeof(detail::CheckCropping1D<Before, After>) > 0);
};

static_assert(Layer<Cropping1D<>> && Cropping1D<0, 2>::op(shape(4, 5)).out() == shape(2, 5) &&
              !Cropping1D<2>::accepts(shape(4, 5)));

}  // namespace lockstep
