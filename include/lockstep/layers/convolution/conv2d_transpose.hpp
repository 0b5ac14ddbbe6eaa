/// \file
/// Transposed convolution of NHWC images with kernels height x width x out x in: the gradient of a
/// convolution with respect to its input. Invariant: `convolution()` is that convolution, from the
/// output of this op to its input.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/convolution/conv2d.hpp"

namespace lockstep {

/// y[n, r sh + i dh - top, c sw + j dw - left, f] accumulates x[n, r, c, k] * kernel[i, j, f, k]
/// over r, c, i, j, k, plus bias[f].
struct Conv2DTransposeOp {
  static constexpr std::string_view members =
      "in .height .width filters kernel_size strides dilation_rate padding use_bias";
  Shape in;                   // (height, width, channels)
  int height = 1, width = 1;  // of the output
  int filters = 1;
  KernelSize kernel;
  Strides strides;
  Dilation dilation;
  Padding padding = Padding::valid;
  bool bias = true;

  constexpr Shape out() const { return shape(height, width, filters); }
  /// The convolution whose gradient this op computes.
  constexpr Conv2DOp convolution() const {
    return {out(), in[2], kernel, strides, dilation, padding, false};
  }
  /// Elements of the kernel, which the bias follows in the flat buffer.
  constexpr std::size_t kernel_size() const { return convolution().kernel_size(); }
  constexpr std::size_t weights() const {
    return kernel_size() + (bias ? static_cast<std::size_t>(filters) : 0);
  }
  constexpr double flops() const { return convolution().flops(); }
  bool operator==(const Conv2DTransposeOp&) const = default;
};

/// Option created by `output_padding`.
struct OutputPadding {
  int height = 0, width = 0;
  bool given = false;  ///< false: Keras' default; the numbers are ignored
  bool operator==(const OutputPadding&) const = default;
};
/// Extra rows at the bottom and columns at the right of the output of a transposed convolution. At
/// least 0 and less than the strides; not 0 if an even kernel has ls::same.
constexpr OutputPadding output_padding(int both) { return {both, both, true}; }
constexpr OutputPadding output_padding(int height, int width) { return {height, width, true}; }

namespace detail {

/// Output length along one axis, as in Keras; `extra` is the output padding if `given`.
constexpr int transposed_length(int in, int extent, int stride, Padding padding, bool given,
                                int extra) {
  if (!given)
    return padding == Padding::same ? in * stride
                                    : (in - 1) * stride + (extent > stride ? extent : stride);
  return (in - 1) * stride + extent + extra - (padding == Padding::same ? extent / 2 * 2 : 0);
}

constexpr Conv2DTransposeOp transpose_op(Shape in, int filters, KernelSize k, Strides step,
                                         Dilation gap, Padding padding, OutputPadding extra,
                                         bool bias) {
  return {in,
          transposed_length(in[0], (k.height - 1) * gap.height + 1, step.height, padding,
                            extra.given, extra.height),
          transposed_length(in[1], (k.width - 1) * gap.width + 1, step.width, padding, extra.given,
                            extra.width),
          filters,
          k,
          step,
          gap,
          padding,
          bias};
}
template <int Filters, auto Kernel, auto... Options>
constexpr Conv2DTransposeOp transpose_op(Shape in) {
  return transpose_op(in, Filters, window_size(Kernel), option<Strides, Options...>(Strides{}),
                      option<Dilation, Options...>(Dilation{}),
                      option<Padding, Options...>(Padding::valid),
                      option<OutputPadding, Options...>(OutputPadding{}), has_bias<Options...>());
}

template <class O>
inline constexpr bool is_transpose_option =
    (is_conv2d_option<O> && !is_any_of<O, Groups>) || is_any_of<O, OutputPadding>;

/// Whether the output padding, if given, is at least 0 and less than the strides.
constexpr bool is_below(OutputPadding extra, Strides strides) {
  return !extra.given || (extra.height >= 0 && extra.height < strides.height && extra.width >= 0 &&
                          extra.width < strides.width);
}

/// Whether the output is a valid input of the convolution that leads back to the input shape.
constexpr bool is_transposed(const Conv2DTransposeOp& op) {
  const Conv2DOp back = op.convolution();
  return back.rows().fits() && back.columns().fits() && back.rows().out() == op.in[0] &&
         back.columns().out() == op.in[1];
}

template <Conv2DTransposeOp Numbers, OutputPadding Extra, class... Options>
struct CheckConv2DTranspose {
  static constexpr bool positive = Numbers.kernel.height > 0 && Numbers.kernel.width > 0 &&
                                   Numbers.strides.height > 0 && Numbers.strides.width > 0 &&
                                   Numbers.dilation.height > 0 && Numbers.dilation.width > 0;
  static_assert(sizeof(CheckOneActivation<Options...>) > 0);
  static_assert(Numbers.filters > 0,
                "lockstep::Conv2DTranspose: filters must be at least 1; write "
                "Conv2DTranspose<filters, kernel size>");
  static_assert(positive,
                "lockstep::Conv2DTranspose: the kernel size, strides and dilation must be at least "
                "1; write Conv2DTranspose<filters, 3, ls::strides(2)>");
  static_assert(
      (is_transpose_option<Options> && ...),
      "lockstep::Conv2DTranspose: an option is not supported; it accepts padding, strides, "
      "dilation, output_padding, an activation, use_bias, initializers and regularizers");
  static_assert(!positive || is_below(Extra, Numbers.strides),
                "lockstep::Conv2DTranspose: output_padding must be at least 0 and less than the "
                "strides; write Conv2DTranspose<filters, 3, ls::strides(2), "
                "ls::output_padding(1)>");
  static_assert(
      !positive || !is_below(Extra, Numbers.strides) || is_transposed(Numbers),
      "lockstep::Conv2DTranspose: an output_padding of 0 does not fit an even kernel size with "
      "ls::same; make it at least 1 or omit it");
};
}  // namespace detail

/// Keras' Conv2DTranspose (deconvolution) with `Filters` kernels of size `Kernel` (3, or
/// ls::kernel(5, 3)), placed `strides` apart on the output.
///
/// Options: ls::same (default ls::valid), ls::strides, ls::dilation, ls::output_padding, an
/// activation, ls::no_bias, initializers, regularizers. Input (h, w, c); output (h sh, w sw,
/// Filters) with ls::same, otherwise ((h - 1) sh + max(kh, sh), ..., Filters). Parameters `kernel`
/// (kh, kw, Filters, c) and `bias` (Filters).
/// \code
///   Conv2DTranspose<32, 3, ls::same, ls::strides(2), ls::relu>       // doubles height and width
/// \endcode
template <int Filters, auto Kernel, auto... Options>
struct Conv2DTranspose {
  static constexpr std::string_view name = "conv2d_transpose";
  using activation = detail::activation_of<Options...>;

  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 3,
        "lockstep::Conv2DTranspose: the input does not have height, width and channels; put "
        "Reshape before it");
  };
  static constexpr bool accepts(Shape in) { return in.rank == 3; }
  static constexpr Conv2DTransposeOp op(Shape in) {
    return detail::transpose_op<Filters, Kernel, Options...>(in);
  }
  static constexpr std::array<Parameter, 2> parameters(Shape in) {
    const KernelSize k = detail::window_size(Kernel);
    const int field = k.height * k.width;
    // Like Keras, takes the last axis of (kh, kw, Filters, c) as `out` when counting fans.
    return detail::affine_parameters<Options...>(shape(k.height, k.width, Filters, in[2]),
                                                 {field * Filters, field * in[2]}, Filters);
  }

  static_assert(sizeof(detail::CheckConv2DTranspose<
                       detail::transpose_op<Filters, Kernel, Options...>(shape(2, 2, 1)),
                       detail::option<OutputPadding, Options...>(OutputPadding{}),
                       std::remove_cvref_t<decltype(Options)>...>) > 0);
};

static_assert(Layer<Conv2DTranspose<8, 3>> &&
              Conv2DTranspose<8, 3>::op(shape(5, 5, 4)).out() == shape(7, 7, 8) &&
              Conv2DTranspose<8, 3, same, strides(2)>::op(shape(5, 5, 4)).out() ==
                  shape(10, 10, 8));

}  // namespace lockstep
