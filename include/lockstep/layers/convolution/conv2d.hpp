/// \file
/// Two-dimensional convolution (cross-correlation) of NHWC images with kernels height x width x in
/// x out, where `in` counts the channels of one group.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/affine.hpp"
#include "lockstep/layers/sliding_window.hpp"

namespace lockstep {

namespace detail {
/// The channels or filters of one group. The layer reports a number of groups below 1.
constexpr int per_group(int all, int groups) { return groups > 0 ? all / groups : all; }
}  // namespace detail

/// y[n, r, c, f] = bias[f] + sum over i, j, k of x[n, r sh + i dh - top, c sw + j dw - left, k] *
/// kernel[i, j, k, f], where sh, sw are the strides, dh, dw the dilation, and top, left the
/// padding. With g groups, filter f reads the c / g channels of its group: x[..., q c / g + k] with
/// q = floor(f g / filters).
struct Conv2DOp {
  static constexpr std::string_view members =
      "in filters kernel_size strides dilation_rate padding use_bias ?groups";
  Shape in;  // (height, width, channels)
  int filters = 1;
  KernelSize kernel;
  Strides strides;
  Dilation dilation;
  Padding padding = Padding::valid;
  bool bias = true;
  int groups = 1;  // divides the channels and the filters

  constexpr Window rows() const {
    return {in[0], kernel.height, strides.height, dilation.height, padding};
  }
  constexpr Window columns() const {
    return {in[1], kernel.width, strides.width, dilation.width, padding};
  }
  constexpr int channels() const { return in[2]; }
  /// Channels and filters of one group.
  constexpr int group_channels() const { return detail::per_group(in[2], groups); }
  constexpr int group_filters() const { return detail::per_group(filters, groups); }
  constexpr Shape out() const { return shape(rows().out(), columns().out(), filters); }
  constexpr Shape kernel_shape() const {
    return shape(kernel.height, kernel.width, group_channels(), filters);
  }
  /// Elements of the kernel, which the bias follows in the flat buffer.
  constexpr std::size_t kernel_size() const { return kernel_shape().size(); }
  constexpr std::size_t weights() const {
    return kernel_size() + (bias ? static_cast<std::size_t>(filters) : 0);
  }
  constexpr double flops() const {
    return 2.0 * kernel.height * kernel.width * group_channels() *
           static_cast<double>(out().size());
  }
  bool operator==(const Conv2DOp&) const = default;
};

namespace detail {
template <class O>
inline constexpr bool is_conv2d_option =
    is_any_of<O, Padding, Strides, Dilation, Groups> || is_affine_option<O>;
/// A kernel size given as one number or as ls::kernel.
constexpr KernelSize window_size(int both) { return {both, both}; }
constexpr KernelSize window_size(KernelSize size) { return size; }
}  // namespace detail

namespace detail {
/// Whether channels or filters can be divided into groups. A number of groups below 1 is reported
/// by the layer's own check.
constexpr bool divides(Groups g, int all) { return g.value < 1 || all % g.value == 0; }

template <int Filters, KernelSize Kernel, Strides Step, Dilation Gap, Groups Parts,
          class... Options>
struct CheckConv2D {
  static_assert(sizeof(CheckOneActivation<Options...>) > 0);
  static_assert(Filters > 0,
                "lockstep::Conv2D: filters must be at least 1; write Conv2D<filters, kernel size>");
  static_assert(Kernel.height > 0 && Kernel.width > 0 && Step.height > 0 && Step.width > 0 &&
                    Gap.height > 0 && Gap.width > 0,
                "lockstep::Conv2D: the kernel size, strides and dilation must be at least 1; write "
                "Conv2D<filters, 3, ls::strides(2)>");
  static_assert(Parts.value > 0 && divides(Parts, Filters),
                "lockstep::Conv2D: groups must be at least 1 and divide the filters; write "
                "Conv2D<128, 3, ls::groups(32)>");
  static_assert(
      (is_conv2d_option<Options> && ...),
      "lockstep::Conv2D: an option is not supported; it accepts padding, strides, dilation, groups, "
      "an activation, use_bias, initializers and regularizers");
};
}  // namespace detail

/// Keras' Conv2D with `Filters` kernels of size `Kernel` (3, or ls::kernel(5, 3)).
///
/// Options: ls::same (default ls::valid), ls::strides, ls::dilation, ls::groups, an activation,
/// ls::no_bias, initializers, regularizers. Input (h, w, c), output (h', w', Filters); parameters
/// `kernel` (kh, kw, c / groups, Filters) and `bias` (Filters).
/// \code
///   Conv2D<32, 3, ls::same, ls::strides(2), ls::he_normal, ls::kernel_regularizer(ls::L2{2e-4})>
/// \endcode
template <int Filters, auto Kernel, auto... Options>
struct Conv2D {
  static constexpr std::string_view name = "conv2d";
  using activation = detail::activation_of<Options...>;
  static constexpr Groups parts = detail::option<Groups, Options...>(Groups{});

  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 3 || detail::always_false<Conv2D>,
        "lockstep::Conv2D: the input does not have height, width and channels; begin with "
        "Input<height, width, channels> and put Flatten after the convolutions");
    static_assert(In.rank != 3 || detail::divides(parts, In[2]),
                  "lockstep::Conv2D: the input's channels are not a multiple of groups");
    static_assert(
        In.rank != 3 || !detail::divides(parts, In[2]),
        "lockstep::Conv2D: the input is smaller than the kernel; use a smaller kernel or ls::same");
  };
  static constexpr bool accepts(Shape in) {
    return in.rank == 3 && detail::divides(parts, in[2]) && op(in).rows().fits() &&
           op(in).columns().fits();
  }
  static constexpr Conv2DOp op(Shape in) {
    return {in,
            Filters,
            detail::window_size(Kernel),
            detail::option<Strides, Options...>(Strides{}),
            detail::option<Dilation, Options...>(Dilation{}),
            detail::option<Padding, Options...>(Padding::valid),
            detail::has_bias<Options...>(),
            parts.value};
  }
  static constexpr std::array<Parameter, 2> parameters(Shape in) {
    const KernelSize k = detail::window_size(Kernel);
    const int field = k.height * k.width, each = detail::per_group(in[2], parts.value);
    return detail::affine_parameters<Options...>(shape(k.height, k.width, each, Filters),
                                                 {field * each, field * Filters}, Filters);
  }

  static_assert(sizeof(detail::CheckConv2D<Filters, detail::window_size(Kernel),
                                           detail::option<Strides, Options...>(Strides{}),
                                           detail::option<Dilation, Options...>(Dilation{}), parts,
                                           std::remove_cvref_t<decltype(Options)>...>) > 0);
};

static_assert(Layer<Conv2D<32, 3>> &&
              Conv2D<32, 3>::op(shape(28, 28, 1)).out() == shape(26, 26, 32));

}  // namespace lockstep
