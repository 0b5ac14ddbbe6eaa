/// \file
/// Transposed convolution over steps.
#pragma once

#include "lockstep/layers/along_steps.hpp"
#include "lockstep/layers/convolution/conv1d.hpp"
#include "lockstep/layers/convolution/conv2d_transpose.hpp"

namespace lockstep {
namespace detail {

constexpr OutputPadding along_steps(OutputPadding extra) { return {0, extra.width, extra.given}; }

template <int Filters, int Size, auto... Options>
constexpr Conv2DTransposeOp transpose_op_along_steps(Shape in) {
  return transpose_op(
      as_row(in), Filters, {1, Size}, along_steps(option<Strides, Options...>(Strides{})),
      along_steps(option<Dilation, Options...>(Dilation{})),
      option<Padding, Options...>(Padding::valid),
      along_steps(option<OutputPadding, Options...>(OutputPadding{})), has_bias<Options...>());
}

template <Conv2DTransposeOp Numbers, OutputPadding Extra, class... Options>
struct CheckConv1DTranspose {
  static constexpr bool positive =
      Numbers.kernel.width > 0 && Numbers.strides.width > 0 && Numbers.dilation.width > 0;
  static_assert(sizeof(CheckOneActivation<Options...>) > 0);
  static_assert(Numbers.filters > 0,
                "lockstep::Conv1DTranspose: filters must be at least 1; write "
                "Conv1DTranspose<filters, kernel size>");
  static_assert(positive,
                "lockstep::Conv1DTranspose: the kernel size, strides and dilation must be at least "
                "1; write Conv1DTranspose<filters, 3, ls::strides(2)>");
  static_assert(
      (is_transpose_option<Options> && ...),
      "lockstep::Conv1DTranspose: an option is not supported; it accepts padding, strides, "
      "dilation, output_padding, an activation, use_bias, initializers and regularizers");
  static_assert(!positive || is_below(along_steps(Extra), Numbers.strides),
                "lockstep::Conv1DTranspose: output_padding must be at least 0 and less than the "
                "strides; write Conv1DTranspose<filters, 3, ls::strides(2), "
                "ls::output_padding(1)>");
  static_assert(
      !positive || !is_below(along_steps(Extra), Numbers.strides) || is_transposed(Numbers),
      "lockstep::Conv1DTranspose: an output_padding of 0 does not fit an even kernel size with "
      "ls::same; make it at least 1 or omit it");
};

}  // namespace detail

/// Keras' Conv1DTranspose: y[n, s stride + j dilation - before, f] accumulates x[n, s, k] *
/// kernel[j, f, k] over s, j, k, plus bias[f].
///
/// Options as for Conv2DTranspose: ls::same (default ls::valid), ls::strides(s), ls::dilation(d),
/// ls::output_padding(p), an activation, ls::no_bias, initializers, regularizers. Input (steps, c),
/// output (steps', Filters), where steps' is steps s with ls::same, otherwise (steps - 1) s +
/// max(Size, s); parameters `kernel` (Size, Filters, c) and `bias` (Filters).
/// \code
///   Conv1DTranspose<32, 4, ls::same, ls::strides(2)>       // doubles the steps
/// \endcode
template <int Filters, int Size, auto... Options>
struct Conv1DTranspose {
  static constexpr std::string_view name = "conv1d_transpose";
  using activation = detail::activation_of<Options...>;

  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 2,
        "lockstep::Conv1DTranspose: the input does not have steps and channels; put Reshape before "
        "it");
  };
  static constexpr bool accepts(Shape in) { return in.rank == 2; }
  static constexpr AlongSteps<Conv2DTransposeOp> op(Shape in) {
    return {detail::transpose_op_along_steps<Filters, Size, Options...>(in)};
  }
  static constexpr std::array<Parameter, 2> parameters(Shape in) {
    // Like Keras, takes the last axis of (Size, Filters, c) as `out` when counting fans.
    return detail::affine_parameters<Options...>(shape(Size, Filters, in[1]),
                                                 {Size * Filters, Size * in[1]}, Filters);
  }

  static_assert(sizeof(detail::CheckConv1DTranspose<
                       detail::transpose_op_along_steps<Filters, Size, Options...>(shape(2, 1)),
                       detail::option<OutputPadding, Options...>(OutputPadding{}),
                       std::remove_cvref_t<decltype(Options)>...>) > 0);
};

static_assert(Layer<Conv1DTranspose<8, 3>> &&
              Conv1DTranspose<8, 3>::op(shape(5, 4)).out() == shape(7, 8) &&
              Conv1DTranspose<8, 4, same, strides(2)>::op(shape(5, 4)).out() == shape(10, 8));

}  // namespace lockstep
