/// \file
/// Depthwise convolution: each channel of an NHWC image has its own kernels, height x width x
/// channels x multiplier.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/layers/convolution/depthwise_options.hpp"

namespace lockstep {

/// y[n, r, c, k m + q] = bias[k m + q] + sum over i, j of x[n, r sh + i dh - top, c sw + j dw -
/// left, k] * kernel[i, j, k, q], for q = 0 .. m - 1: m outputs per channel k.
struct DepthwiseConv2DOp {
  static constexpr std::string_view members =
      "in depth_multiplier kernel_size strides dilation_rate padding use_bias";
  Shape in;  // (height, width, channels)
  int multiplier = 1;
  KernelSize kernel;
  Strides strides;
  Dilation dilation;
  Padding padding = Padding::valid;
  bool bias = true;

  constexpr Window rows() const {
    return {in[0], kernel.height, strides.height, dilation.height, padding};
  }
  constexpr Window columns() const {
    return {in[1], kernel.width, strides.width, dilation.width, padding};
  }
  constexpr int channels() const { return in[2]; }
  constexpr int filters() const { return in[2] * multiplier; }
  constexpr Shape out() const { return shape(rows().out(), columns().out(), filters()); }
  constexpr Shape kernel_shape() const {
    return shape(kernel.height, kernel.width, in[2], multiplier);
  }
  /// Elements of the kernel, which the bias follows in the flat buffer.
  constexpr std::size_t kernel_size() const { return kernel_shape().size(); }
  constexpr std::size_t weights() const {
    return kernel_size() + (bias ? static_cast<std::size_t>(filters()) : 0);
  }
  constexpr double flops() const {
    return 2.0 * kernel.height * kernel.width * static_cast<double>(out().size());
  }
  bool operator==(const DepthwiseConv2DOp&) const = default;
};

namespace detail {
template <class O>
inline constexpr bool is_depthwise_option =
    is_any_of<O, Padding, Strides, Dilation, DepthMultiplier, UseBias> || is_activation<O> ||
    is_rule_for<O, DepthwiseInitializer> || is_rule_for<O, DepthwiseRegularizer> ||
    is_bias_initializer<O> || is_bias_regularizer<O>;

template <auto Kernel, auto... Options>
constexpr DepthwiseConv2DOp depthwise_op(Shape in, bool bias) {
  return {in,
          option<DepthMultiplier, Options...>(DepthMultiplier{}).value,
          window_size(Kernel),
          option<Strides, Options...>(Strides{}),
          option<Dilation, Options...>(Dilation{}),
          option<Padding, Options...>(Padding::valid),
          bias};
}

template <DepthwiseConv2DOp Numbers, class... Options>
struct CheckDepthwiseConv2D {
  static_assert(sizeof(CheckOneActivation<Options...>) > 0);
  static_assert(
      Numbers.kernel.height > 0 && Numbers.kernel.width > 0 && Numbers.strides.height > 0 &&
          Numbers.strides.width > 0 && Numbers.dilation.height > 0 && Numbers.dilation.width > 0 &&
          Numbers.multiplier > 0,
      "lockstep::DepthwiseConv2D: the kernel size, strides, dilation and depth multiplier "
      "must be at least 1; write DepthwiseConv2D<3, ls::strides(2)>");
  static_assert(
      (is_depthwise_option<Options> && ...),
      "lockstep::DepthwiseConv2D: an option is not supported; it accepts padding, strides, "
      "dilation, depth_multiplier, an activation, use_bias, depthwise_initializer, "
      "depthwise_regularizer, and those of the bias");
};
}  // namespace detail

/// Keras' DepthwiseConv2D with separate kernels for each channel, of size `Kernel` (3, or
/// ls::kernel(5, 3)).
///
/// Options: ls::same (default ls::valid), ls::strides, ls::dilation, ls::depth_multiplier (default
/// 1), an activation, ls::no_bias, ls::depthwise_initializer, ls::bias_initializer,
/// ls::depthwise_regularizer, ls::bias_regularizer. Input (h, w, c), output (h', w', c m);
/// parameters `kernel` (kh, kw, c, m) and `bias` (c m).
/// \code
///   DepthwiseConv2D<3, ls::same, ls::depth_multiplier(2),
///                   ls::depthwise_initializer(ls::he_normal)>
/// \endcode
template <auto Kernel, auto... Options>
struct DepthwiseConv2D {
  static constexpr std::string_view name = "depthwise_conv2d";
  using activation = detail::activation_of<Options...>;

  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 3 || detail::always_false<DepthwiseConv2D>,
        "lockstep::DepthwiseConv2D: the input does not have height, width and channels; put "
        "Flatten after the convolutions");
    static_assert(In.rank != 3,
                  "lockstep::DepthwiseConv2D: the input is smaller than the kernel; use a smaller "
                  "kernel or ls::same");
  };
  static constexpr bool accepts(Shape in) {
    return in.rank == 3 && op(in).rows().fits() && op(in).columns().fits();
  }
  static constexpr DepthwiseConv2DOp op(Shape in) {
    return detail::depthwise_op<Kernel, Options...>(in, detail::has_bias<Options...>());
  }
  static constexpr std::array<Parameter, 2> parameters(Shape in) {
    const DepthwiseConv2DOp o = op(in);
    const Fans fans = detail::depthwise_fans(o.kernel.height * o.kernel.width, in[2], o.multiplier);
    return {Parameter{"kernel", o.kernel_shape(), fans,
                      detail::initializer_for<DepthwiseInitializer, Options...>(
                          &detail::initialize<glorot_uniform>),
                      detail::penalty_for<DepthwiseRegularizer, Options...>(), true, true},
            Parameter{"bias", shape(o.filters()), fans,
                      detail::bias_initializer_of<Options...>(&detail::initialize<zeros>),
                      detail::bias_penalty<Options...>(), true, o.bias}};
  }

  static_assert(
      sizeof(detail::CheckDepthwiseConv2D<detail::depthwise_op<Kernel, Options...>(Shape{}, true),
                                          std::remove_cvref_t<decltype(Options)>...>) > 0);
};

static_assert(Layer<DepthwiseConv2D<3>> &&
              DepthwiseConv2D<3, depth_multiplier(2)>::op(shape(28, 28, 8)).out() ==
                  shape(26, 26, 16));

}  // namespace lockstep
