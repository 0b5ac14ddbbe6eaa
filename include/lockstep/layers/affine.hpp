/// \file
/// Shared by Dense and the convolutions: a kernel, a bias, their options and an activation.
#pragma once

#include <array>

#include "lockstep/layers/activation_option.hpp"
#include "lockstep/layers/initializers.hpp"
#include "lockstep/layers/options.hpp"
#include "lockstep/layers/regularizers.hpp"

namespace lockstep::detail {

/// Whether O is an option of every layer with a kernel and a bias.
template <class O>
inline constexpr bool is_affine_option =
    is_any_of<O, UseBias> || is_activation<O> || is_kernel_initializer<O> ||
    is_bias_initializer<O> || is_kernel_regularizer<O> || is_bias_regularizer<O>;

/// Whether the layer has a bias: unless `no_bias` is given.
template <auto... Options>
constexpr bool has_bias() {
  return option<UseBias, Options...>(UseBias{}).on;
}

/// The parameters `kernel` and `bias` with Keras' defaults, glorot_uniform and zeros. Without a
/// bias the entry stays but is switched off.
template <auto... Options>
constexpr std::array<Parameter, 2> affine_parameters(Shape kernel, Fans fans, int units) {
  return {Parameter{"kernel", kernel, fans,
                    kernel_initializer_of<Options...>(&initialize<glorot_uniform>),
                    kernel_penalty<Options...>(), true, true},
          Parameter{"bias", shape(units), fans, bias_initializer_of<Options...>(&initialize<zeros>),
                    bias_penalty<Options...>(), true, has_bias<Options...>()}};
}

}  // namespace lockstep::detail
