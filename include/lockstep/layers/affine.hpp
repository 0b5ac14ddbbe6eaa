/// \file
/// What Dense and the convolutions share: a kernel, a bias, their options, an activation.
#pragma once

#include <array>

#include "lockstep/layers/activation_option.hpp"
#include "lockstep/layers/initializers.hpp"
#include "lockstep/layers/options.hpp"
#include "lockstep/layers/regularizers.hpp"

namespace lockstep::detail {

/// Options that every layer with a kernel and a bias takes.
template <class O>
inline constexpr bool is_affine_option =
    is_any_of<O, UseBias> || is_activation<O> || is_kernel_initializer<O> ||
    is_bias_initializer<O> || is_kernel_regularizer<O> || is_bias_regularizer<O>;

template <auto... Options>
constexpr bool has_bias() {
  return option<UseBias, Options...>(UseBias{}).on;
}

/// Keras' defaults: kernel glorot_uniform, bias zeros.
template <auto... Options>
constexpr std::array<Parameter, 2> affine_parameters(Shape kernel, Fans fans, int units) {
  return {Parameter{"kernel", kernel, fans,
                    kernel_initializer_of<Options...>(&initialize<glorot_uniform>),
                    kernel_penalty<Options...>(), true, true},
          Parameter{"bias", shape(units), fans, bias_initializer_of<Options...>(&initialize<zeros>),
                    bias_penalty<Options...>(), true, has_bias<Options...>()}};
}

}  // namespace lockstep::detail
