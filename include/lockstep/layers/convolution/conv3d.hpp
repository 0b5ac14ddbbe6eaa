/// \file
/// Three-dimensional convolution (cross-correlation) of NDHWC volumes with kernels depth x height x
/// width x in x out, where `in` counts the channels of one group.
#pragma once

#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/layers/volume_options.hpp"

namespace lockstep {

/// y[n, z, r, c, f] = bias[f] + sum over h, i, j, k of x[n, z sd + h dd - front, r sh + i dh - top,
/// c sw + j dw - left, k] * kernel[h, i, j, k, f]; strides, dilation, padding and groups as in
/// Conv2DOp.
struct Conv3DOp {
  static constexpr std::string_view members = Conv2DOp::members;
  Shape in;  // (depth, height, width, channels)
  int filters = 1;
  KernelSize3D kernel;
  Strides3D strides;
  Dilation3D dilation;
  Padding padding = Padding::valid;
  bool bias = true;
  int groups = 1;  // divides the channels and the filters

  constexpr Window depths() const {
    return {in[0], kernel.depth, strides.depth, dilation.depth, padding};
  }
  constexpr Window rows() const {
    return {in[1], kernel.height, strides.height, dilation.height, padding};
  }
  constexpr Window columns() const {
    return {in[2], kernel.width, strides.width, dilation.width, padding};
  }
  constexpr int channels() const { return in[3]; }
  /// Channels and filters of one group.
  constexpr int group_channels() const { return detail::per_group(in[3], groups); }
  constexpr int group_filters() const { return detail::per_group(filters, groups); }
  constexpr Shape out() const {
    return shape(depths().out(), rows().out(), columns().out(), filters);
  }
  constexpr Shape kernel_shape() const {
    return {5, {kernel.depth, kernel.height, kernel.width, group_channels(), filters}};
  }
  /// Elements of the kernel, which the bias follows in the flat buffer.
  constexpr std::size_t kernel_size() const { return kernel_shape().size(); }
  constexpr std::size_t weights() const {
    return kernel_size() + (bias ? static_cast<std::size_t>(filters) : 0);
  }
  constexpr double flops() const {
    return 2.0 * kernel.depth * kernel.height * kernel.width * group_channels() *
           static_cast<double>(out().size());
  }
  bool operator==(const Conv3DOp&) const = default;
};

namespace detail {
template <class O>
inline constexpr bool is_conv3d_option = is_conv2d_option<O> || is_any_of<O, Strides3D, Dilation3D>;

template <int Filters, KernelSize3D Kernel, Strides3D Step, Dilation3D Gap, Groups Parts,
          class... Options>
struct CheckConv3D {
  static_assert(sizeof(CheckOneActivation<Options...>) > 0);
  static_assert(Filters > 0,
                "lockstep::Conv3D: filters must be at least 1; write Conv3D<filters, kernel size>");
  static_assert(Kernel.depth > 0 && Kernel.height > 0 && Kernel.width > 0 && Step.depth > 0 &&
                    Step.height > 0 && Step.width > 0 && Gap.depth > 0 && Gap.height > 0 &&
                    Gap.width > 0,
                "lockstep::Conv3D: the kernel size, strides and dilation are one number or three, "
                "at least 1; write Conv3D<filters, 3, ls::strides(1, 2, 2)>");
  static_assert(Parts.value > 0 && divides(Parts, Filters),
                "lockstep::Conv3D: groups must be at least 1 and divide the filters; write "
                "Conv3D<128, 3, ls::groups(32)>");
  static_assert(
      (is_conv3d_option<Options> && ...),
      "lockstep::Conv3D: an option is not supported; it accepts padding, strides, dilation, groups, "
      "an activation, use_bias, initializers and regularizers");
};
}  // namespace detail

/// Keras' Conv3D with `Filters` kernels of size `Kernel` (3, or ls::kernel(1, 3, 3)).
///
/// Options: ls::same (default ls::valid), ls::strides and ls::dilation with one number or three,
/// ls::groups, an activation, ls::no_bias, initializers, regularizers. Input (d, h, w, c), output
/// (d', h', w', Filters); parameters `kernel` (kd, kh, kw, c / groups, Filters) and `bias` (Filters).
/// \code
///   struct Scan : ls::Sequential<ls::Input<16, 32, 32, 1>,
///                                ls::Conv3D<8, 3, ls::same, ls::strides(1, 2, 2), ls::relu>,
///                                ls::MaxPooling3D<2>, ls::GlobalAveragePooling3D, ls::Dense<2>> {};
/// \endcode
template <int Filters, auto Kernel, auto... Options>
struct Conv3D {
  static constexpr std::string_view name = "conv3d";
  using activation = detail::activation_of<Options...>;
  static constexpr Groups parts = detail::option<Groups, Options...>(Groups{});
  static constexpr KernelSize3D size = detail::volume_size(Kernel);
  static constexpr Strides3D step = detail::volume_option<Strides, Strides3D, Options...>({});
  static constexpr Dilation3D gap = detail::volume_option<Dilation, Dilation3D, Options...>({});

  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 4 || detail::always_false<Conv3D>,
        "lockstep::Conv3D: the input does not have depth, height, width and channels; begin with "
        "Input<depth, height, width, channels> and put Flatten after the convolutions");
    static_assert(In.rank != 4 || detail::divides(parts, In[3]),
                  "lockstep::Conv3D: the input's channels are not a multiple of groups");
    static_assert(
        In.rank != 4 || !detail::divides(parts, In[3]),
        "lockstep::Conv3D: the input is smaller than the kernel; use a smaller kernel or ls::same");
  };
  static constexpr bool accepts(Shape in) {
    return in.rank == 4 && detail::divides(parts, in[3]) && op(in).depths().fits() &&
           op(in).rows().fits() && op(in).columns().fits();
  }
  static constexpr Conv3DOp op(Shape in) {
    return {in,
            Filters,
            size,
            step,
            gap,
            detail::option<Padding, Options...>(Padding::valid),
            detail::has_bias<Options...>(),
            parts.value};
  }
  static constexpr std::array<Parameter, 2> parameters(Shape in) {
    const Shape kernel = op(in).kernel_shape();
    const int field = size.depth * size.height * size.width;
    return detail::affine_parameters<Options...>(kernel, {field * kernel[3], field * Filters},
                                                 Filters);
  }

  static_assert(sizeof(detail::CheckConv3D<Filters, size, step, gap, parts,
                                           std::remove_cvref_t<decltype(Options)>...>) > 0);
};

static_assert(Layer<Conv3D<32, 3>> &&
              Conv3D<32, 3>::op(shape(8, 28, 28, 1)).out() == shape(6, 26, 26, 32));

}  // namespace lockstep
