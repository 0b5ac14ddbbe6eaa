/// \file
/// Fully connected layer.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/affine.hpp"

namespace lockstep {

/// y[n, u] = bias[u] + sum over i of x[n, i] * kernel[i, u].
struct DenseOp {
  static constexpr std::string_view members = "inputs units bias";
  int inputs = 1, units = 1;
  bool bias = true;

  constexpr Shape in() const { return shape(inputs); }
  constexpr Shape out() const { return shape(units); }
  /// Weights before the bias in the flat buffer.
  constexpr std::size_t kernel_size() const {
    return static_cast<std::size_t>(inputs) * static_cast<std::size_t>(units);
  }
  constexpr std::size_t weights() const {
    return kernel_size() + (bias ? static_cast<std::size_t>(units) : 0);
  }
  constexpr double flops() const { return 2.0 * inputs * units; }
  bool operator==(const DenseOp&) const = default;
};

namespace detail {
template <int Units, class... Options>
struct CheckDense {
  static_assert(sizeof(CheckOneActivation<Options...>) > 0);
  static_assert(Units > 0, "lockstep::Dense: units must be at least 1; write Dense<units>");
  static_assert((is_affine_option<Options> && ...),
                "lockstep::Dense: one of the options is not for a dense layer; it takes an "
                "activation, use_bias, initializers and regularizers");
};
}  // namespace detail

/// Keras' Dense. In (i), out (Units); parameters `kernel` (i, Units) and `bias` (Units).
/// Options: an activation, ls::no_bias, initializers, regularizers.
/// \code
///   Dense<64, ls::relu>, Dense<10, ls::kernel_regularizer(ls::L2{1e-4})>
/// \endcode
template <int Units, auto... Options>
struct Dense {
  static constexpr std::string_view name = "dense";
  using activation = detail::activation_of<Options...>;

  template <Shape In>
  struct Requires {
    static_assert(In.rank == 1,
                  "lockstep::Dense: the input has height and width; put Flatten or "
                  "GlobalAveragePooling2D before Dense");
  };
  static constexpr bool accepts(Shape in) { return in.rank == 1; }
  static constexpr DenseOp op(Shape in) { return {in[0], Units, detail::has_bias<Options...>()}; }
  static constexpr std::array<Parameter, 2> parameters(Shape in) {
    return detail::affine_parameters<Options...>(shape(in[0], Units), {in[0], Units}, Units);
  }

  static_assert(sizeof(detail::CheckDense<Units, std::remove_cvref_t<decltype(Options)>...>) > 0);
};

static_assert(Layer<Dense<10>> && Dense<10>::op(shape(64)).flops() == 1280);

}  // namespace lockstep
