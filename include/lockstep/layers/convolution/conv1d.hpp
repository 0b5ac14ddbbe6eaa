/// \file
/// One-dimensional convolution over steps.
#pragma once

#include "lockstep/layers/along_steps.hpp"
#include "lockstep/layers/convolution/conv2d.hpp"

namespace lockstep {
namespace detail {

/// The options along the width of a single-row image.
constexpr Strides along_steps(Strides s) { return {1, s.width}; }
constexpr Dilation along_steps(Dilation d) { return {1, d.width}; }

template <int Filters, int Size, Strides Step, Dilation Gap, Groups Parts, class... Options>
struct CheckConv1D {
  static_assert(sizeof(CheckOneActivation<Options...>) > 0);
  static_assert(Filters > 0,
                "lockstep::Conv1D: filters must be at least 1; write Conv1D<filters, kernel size>");
  static_assert(Size > 0 && Step.width > 0 && Gap.width > 0,
                "lockstep::Conv1D: the kernel size, strides and dilation must be at least 1; write "
                "Conv1D<filters, 3, ls::strides(2)>");
  static_assert(Parts.value > 0 && divides(Parts, Filters),
                "lockstep::Conv1D: groups must be at least 1 and divide the filters; write "
                "Conv1D<128, 3, ls::groups(32)>");
  static_assert(
      (is_conv2d_option<Options> && ...),
      "lockstep::Conv1D: an option is not supported; it accepts padding, strides, dilation, groups, "
      "an activation, use_bias, initializers and regularizers");
};

}  // namespace detail

/// Keras' Conv1D: y[n, s, f] = bias[f] + sum over j, k of x[n, s stride + j dilation - before, k] *
/// kernel[j, k, f].
///
/// Options as for Conv2D: ls::same (default ls::valid), ls::strides(s), ls::dilation(d),
/// ls::groups(g), an activation, ls::no_bias, initializers, regularizers. Input (steps, c), output
/// (steps', Filters); parameters `kernel` (Size, c / groups, Filters) and `bias` (Filters).
/// \code
///   Conv1D<64, 5, ls::same>
/// \endcode
template <int Filters, int Size, auto... Options>
struct Conv1D {
  static constexpr std::string_view name = "conv1d";
  using activation = detail::activation_of<Options...>;
  static constexpr Groups parts = detail::option<Groups, Options...>(Groups{});

  static constexpr AlongSteps<Conv2DOp> op(Shape in) {
    return {{detail::as_row(in),
             Filters,
             {1, Size},
             detail::along_steps(detail::option<Strides, Options...>(Strides{})),
             detail::along_steps(detail::option<Dilation, Options...>(Dilation{})),
             detail::option<Padding, Options...>(Padding::valid),
             detail::has_bias<Options...>(),
             parts.value}};
  }
  static constexpr bool accepts(Shape in) {
    return in.rank == 2 && detail::divides(parts, in[1]) && op(in).op.columns().fits();
  }
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 2 || detail::always_false<Conv1D>,
        "lockstep::Conv1D: the input does not have steps and channels; begin with Input<steps, "
        "channels>");
    static_assert(In.rank != 2 || detail::divides(parts, In[1]),
                  "lockstep::Conv1D: the input's channels are not a multiple of groups");
    static_assert(In.rank != 2 || !detail::divides(parts, In[1]),
                  "lockstep::Conv1D: the input has fewer steps than the kernel; use a smaller "
                  "kernel or ls::same");
  };
  static constexpr std::array<Parameter, 2> parameters(Shape in) {
    const int each = detail::per_group(in[1], parts.value);
    return detail::affine_parameters<Options...>(shape(Size, each, Filters),
                                                 {Size * each, Size * Filters}, Filters);
  }

  static_assert(
      sizeof(detail::CheckConv1D<Filters, Size, detail::option<Strides, Options...>(Strides{}),
                                 detail::option<Dilation, Options...>(Dilation{}), parts,
                                 std::remove_cvref_t<decltype(Options)>...>) > 0);
};

static_assert(Layer<Conv1D<8, 3>> && Conv1D<8, 3>::op(shape(20, 4)).out() == shape(18, 8));

}  // namespace lockstep
