/// \file
/// Zero padding of steps.
#pragma once

#include "lockstep/layers/along_steps.hpp"
#include "lockstep/layers/reshaping/zero_padding2d.hpp"

namespace lockstep {
namespace detail {
template <int Before, int After>
struct CheckZeroPadding1D {
  static_assert(Before >= 0 && After >= 0,
                "lockstep::ZeroPadding1D: the padding of each side must be at least 0; write "
                "ZeroPadding1D<1> or ZeroPadding1D<before, after>");
};
}  // namespace detail

/// Keras' ZeroPadding1D: `Before` steps of zeros, then x, then `After` steps of zeros. Input
/// (steps, c), output (Before + steps + After, c).
/// \code
///   ZeroPadding1D<>          // 1 on each side
///   ZeroPadding1D<2, 0>      // 2 before the first step: causal
/// \endcode
template <int Before = 1, int After = Before>
struct ZeroPadding1D {
  static constexpr std::string_view name = "zero_padding1d";
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 2,
        "lockstep::ZeroPadding1D: the input does not have steps and channels; put it before "
        "Flatten");
  };
  static constexpr bool accepts(Shape in) { return in.rank == 2; }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr AlongSteps<ZeroPadding2DOp> op(Shape in) {
    return {{detail::as_row(in), {0, 0, Before, After}}};
  }

  static_assert(sizeof(detail::CheckZeroPadding1D<Before, After>) > 0);
};

static_assert(Layer<ZeroPadding1D<>> && ZeroPadding1D<2, 0>::op(shape(4, 5)).out() == shape(6, 5));

}  // namespace lockstep
