/// \file
/// Fully connected layer.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/affine.hpp"

namespace lockstep {

/// y[.., u] = bias[u] + sum over i of x[.., i] * kernel[i, u], for each vector along the last axis.
struct DenseOp {
  static constexpr std::string_view members = ".inputs units use_bias .leading";
  int inputs = 1, units = 1;
  bool bias = true;
  Shape leading{};  ///< all axes but the last

  constexpr Shape in() const { return with_last(inputs); }
  constexpr Shape out() const { return with_last(units); }
  /// Vectors per example. A kernel multiplies count * rows() vectors by the same weights.
  constexpr std::size_t rows() const { return leading.size(); }
  /// Elements of the kernel, which the bias follows in the flat buffer.
  constexpr std::size_t kernel_size() const {
    return static_cast<std::size_t>(inputs) * static_cast<std::size_t>(units);
  }
  constexpr std::size_t weights() const {
    return kernel_size() + (bias ? static_cast<std::size_t>(units) : 0);
  }
  constexpr double flops() const { return 2.0 * inputs * units * static_cast<double>(rows()); }
  /// The op of a single vector.
  constexpr DenseOp of_vector() const { return {inputs, units, bias, {}}; }
  bool operator==(const DenseOp&) const = default;

 private:
  constexpr Shape with_last(int extent) const {
    Shape all = leading;
    all.extent[static_cast<std::size_t>(all.rank++)] = extent;
    return all;
  }
};

namespace detail {
template <int Units, class... Options>
struct CheckDense {
  static_assert(sizeof(CheckOneActivation<Options...>) > 0);
  static_assert(Units > 0, "lockstep::Dense: units must be at least 1; write Dense<units>");
  static_assert((is_affine_option<Options> && ...),
                "lockstep::Dense: an option is not supported; it accepts an activation, use_bias, "
                "initializers and regularizers");
};
}  // namespace detail

/// Keras' Dense over the last axis, with the same weights for each step or pixel. Input (.., i),
/// output (.., Units); parameters `kernel` (i, Units) and `bias` (Units). Options: an activation,
/// ls::no_bias, initializers, regularizers.
/// \code
///   Dense<64, ls::relu>, Dense<10, ls::kernel_regularizer(ls::L2{1e-4})>
/// \endcode
template <int Units, auto... Options>
struct Dense {
  static constexpr std::string_view name = "dense";
  static constexpr bool supports_masking = true;
  using activation = detail::activation_of<Options...>;

  template <Shape In>
  struct Requires {
    static_assert(In.rank >= 1,
                  "lockstep::Dense: the input is a scalar; put Reshape<ls::shape(1)> before Dense");
  };
  static constexpr bool accepts(Shape in) { return in.rank >= 1; }
  static constexpr DenseOp op(Shape in) {
    Shape leading = in;
    leading.extent[static_cast<std::size_t>(--leading.rank)] = 1;
    return {in.channels(), Units, detail::has_bias<Options...>(), leading};
  }
  static constexpr std::array<Parameter, 2> parameters(Shape in) {
    const int inputs = in.channels();
    return detail::affine_parameters<Options...>(shape(inputs, Units), {inputs, Units}, Units);
  }

  static_assert(sizeof(detail::CheckDense<Units, std::remove_cvref_t<decltype(Options)>...>) > 0);
};

static_assert(Layer<Dense<10>> && Dense<10>::op(shape(64)).flops() == 1280);

}  // namespace lockstep
