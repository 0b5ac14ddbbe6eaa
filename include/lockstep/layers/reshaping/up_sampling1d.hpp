/// \file
/// Upsampling of steps by an integer factor.
#pragma once

#include "lockstep/layers/along_steps.hpp"
#include "lockstep/layers/reshaping/up_sampling2d.hpp"

namespace lockstep {
namespace detail {
template <int Size>
struct CheckUpSampling1D {
  static_assert(Size > 0,
                "lockstep::UpSampling1D: the factor must be at least 1; write UpSampling1D<2>");
};
}  // namespace detail

/// Keras' UpSampling1D: each step `Size` times. Input (steps, c), output (steps Size, c).
/// \code
///   UpSampling1D<>, UpSampling1D<3>
/// \endcode
template <int Size = 2>
struct UpSampling1D {
  static constexpr std::string_view name = "up_sampling1d";
  template <Shape In>
  struct Requires {
    static_assert(In.rank == 2,
                  "lockstep::UpSampling1D: the input does not have steps and channels; put it "
                  "before Flatten");
  };
  static constexpr bool accepts(Shape in) { return in.rank == 2; }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr AlongSteps<UpSampling2DOp> op(Shape in) {
    return {{detail::as_row(in), {1, Size > 0 ? Size : 1}}};
  }

  static_assert(sizeof(detail::CheckUpSampling1D<Size>) > 0);
};

static_assert(Layer<UpSampling1D<>> && UpSampling1D<3>::op(shape(4, 5)).out() == shape(12, 5));

}  // namespace lockstep
