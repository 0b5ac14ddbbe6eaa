/// \file
/// Pooling over steps: MaxPooling1D and AveragePooling1D over windows, and global pooling over all
/// steps.
#pragma once

#include "lockstep/layers/along_steps.hpp"
#include "lockstep/layers/mask.hpp"
#include "lockstep/layers/pooling/average_pooling2d.hpp"
#include "lockstep/layers/pooling/global_average_pooling2d.hpp"
#include "lockstep/layers/pooling/global_max_pooling2d.hpp"
#include "lockstep/layers/pooling/max_pooling2d.hpp"

namespace lockstep {
namespace detail {

template <int Pool, Strides Step, class... Options>
struct CheckPooling1D {
  static_assert(Pool > 0 && Step.width > 0,
                "lockstep::Pooling1D: the pool size and the strides must be at least 1; write "
                "MaxPooling1D<2>");
  static_assert((is_any_of<Options, Padding, Strides> && ...),
                "lockstep::Pooling1D: an option is not supported; it accepts strides and padding");
};

/// A pooling layer over steps, computed by the 2D pooling op O on single-row images.
template <class O, int Pool, auto... Options>
struct Pooling1DLayer {
  static constexpr AlongSteps<O> op(Shape in) {
    return {{{as_row(in),
              {1, Pool},
              {1, option<Strides, Options...>(Strides{1, Pool}).width},
              option<Padding, Options...>(Padding::valid)}}};
  }
  static constexpr bool accepts(Shape in) {
    return in.rank == 2 && op(in).op.window.columns().fits();
  }
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 2 || always_false<O>,
        "lockstep::Pooling1D: the input does not have steps and channels; put pooling before "
        "Flatten");
    static_assert(In.rank != 2,
                  "lockstep::Pooling1D: the input has fewer steps than the pool; use a smaller "
                  "pool or ls::same");
  };
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }

  static_assert(sizeof(CheckPooling1D<Pool, option<Strides, Options...>(Strides{}),
                                      std::remove_cvref_t<decltype(Options)>...>) > 0);
};

/// A global pooling layer over steps, computed by the 2D op O on single-row images.
template <class O>
struct GlobalPooling1DLayer {
  static constexpr bool accepts(Shape in) { return in.rank == 2; }
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 2,
        "lockstep::GlobalPooling1D: the input does not have steps and channels; put it before "
        "Flatten");
  };
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr AlongSteps<O> op(Shape in) { return {{as_row(in)}}; }
};

}  // namespace detail

/// y[n, k] = the mean of x[n, s, k] over the steps s of the mask; 0 if there are none.
struct MaskedAverageOp {
  Shape in;  // (steps, channels)
  constexpr Shape out() const { return shape(in[1]); }
  constexpr bool has_gradient(std::size_t operand) const { return operand == 0; }
  bool operator==(const MaskedAverageOp&) const = default;
};
template <>
struct detail::MaskedForm<AlongSteps<GlobalAveragePooling2DOp>> {
  using type = List<MaskedAverageOp>;
};

/// Keras' MaxPooling1D: the maximum of each window of steps. Input (steps, c), output (steps', c).
/// By default strides equal to the pool size, and ls::valid.
template <int Pool = 2, auto... Options>
struct MaxPooling1D : detail::Pooling1DLayer<MaxPooling2DOp, Pool, Options...> {
  static constexpr std::string_view name = "max_pooling1d";
};
/// Keras' AveragePooling1D: the mean of each window of steps. Input (steps, c), output (steps', c).
/// Options as for MaxPooling1D.
template <int Pool = 2, auto... Options>
struct AveragePooling1D : detail::Pooling1DLayer<AveragePooling2DOp, Pool, Options...> {
  static constexpr std::string_view name = "average_pooling1d";
};
/// Keras' GlobalMaxPooling1D: the maximum over all steps. Input (steps, c), output (c).
struct GlobalMaxPooling1D : detail::GlobalPooling1DLayer<GlobalMaxPooling2DOp> {
  static constexpr std::string_view name = "global_max_pooling1d";
};
/// Keras' GlobalAveragePooling1D: the mean over all steps, or over those of a mask. Input (steps, c),
/// output (c).
struct GlobalAveragePooling1D : detail::GlobalPooling1DLayer<GlobalAveragePooling2DOp> {
  using Unmasked = detail::GlobalPooling1DLayer<GlobalAveragePooling2DOp>;
  static constexpr std::string_view name = "global_average_pooling1d";
  static constexpr bool reads_mask = true;
  using Unmasked::accepts, Unmasked::op, Unmasked::parameters;
  static constexpr bool accepts(Shape in, Shape mask) {
    return accepts(in) && mask == shape(in[0]);
  }
  static constexpr MaskedAverageOp op(Shape in, Shape) { return {in}; }
  static constexpr std::array<Parameter, 0> parameters(Shape, Shape) { return {}; }
};

static_assert(Layer<MaxPooling1D<>> && Layer<AveragePooling1D<3, same>> &&
              Layer<GlobalMaxPooling1D> && Layer<GlobalAveragePooling1D>);
static_assert(MaxPooling1D<2>::op(shape(9, 4)).out() == shape(4, 4) &&
              GlobalMaxPooling1D::op(shape(9, 4)).out() == shape(4));

}  // namespace lockstep
