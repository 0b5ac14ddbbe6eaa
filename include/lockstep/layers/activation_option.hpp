/// \file
/// An activation as an option of a layer, like Keras' argument `activation`.
#pragma once

#include <type_traits>

#include "lockstep/layers/activations/elu.hpp"
#include "lockstep/layers/activations/gelu.hpp"
#include "lockstep/layers/activations/leaky_relu.hpp"
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/activations/relu6.hpp"
#include "lockstep/layers/activations/sigmoid.hpp"
#include "lockstep/layers/activations/silu.hpp"
#include "lockstep/layers/activations/softmax.hpp"
#include "lockstep/layers/activations/softplus.hpp"
#include "lockstep/layers/activations/tanh.hpp"
#include "lockstep/layers/options.hpp"

namespace lockstep {

namespace detail {
template <class L>
struct CheckActivation {
  static_assert(
      L::parameters(shape(2, 3, 4)).size() == 0 && L::accepts(shape(2)) &&
          L::accepts(shape(2, 3, 4)) && L::op(shape(2, 3, 4)).out() == shape(2, 3, 4),
      "lockstep::activation: the layer has parameters or changes the shape; add it as a separate "
      "layer");
};
}  // namespace detail

/// Layer L as an activation: applied to the output of another layer and listed under its name. Made
/// by `activation`.
template <Layer L>
struct Activation {
  using layer = L;

  static_assert(sizeof(detail::CheckActivation<L>) > 0);
};

/// Wraps any layer that has no parameters and keeps its input's shape: `Dense<64,
/// ls::activation<MySquare>>`. `Dense<64, ls::relu>` computes the same as `Dense<64>, ReLU`, but
/// counts as one layer in names and tables.
template <Layer L>
inline constexpr Activation<L> activation{};

inline constexpr auto elu = activation<ELU>;
inline constexpr auto gelu = activation<GELU>;
/// As Keras' function `leaky_relu`, with slope 0.2. The layer LeakyReLU has 0.3.
inline constexpr auto leaky_relu = activation<LeakyReLU<negative_slope(0.2f)>>;
inline constexpr auto log_softmax = activation<LogSoftmax>;
inline constexpr auto relu = activation<ReLU>;
inline constexpr auto relu6 = activation<ReLU6>;
inline constexpr auto sigmoid = activation<Sigmoid>;
inline constexpr auto silu = activation<SiLU>;
inline constexpr auto softmax = activation<Softmax>;
inline constexpr auto softplus = activation<Softplus>;
inline constexpr auto tanh = activation<Tanh>;

namespace detail {

/// Whether O is an `Activation<L>`.
template <class O>
inline constexpr bool is_activation = false;
template <class L>
inline constexpr bool is_activation<Activation<L>> = true;

template <class... Options>
struct CheckOneActivation {
  static_assert(
      (0 + ... + (is_activation<Options> ? 1 : 0)) < 2,
      "lockstep::activation: a layer has at most one activation; add the second one as a separate "
      "layer");
};

template <class... Options>
struct ActivationAmong {
  using type = void;
};
template <class O, class... Options>
struct ActivationAmong<O, Options...> : ActivationAmong<Options...> {};
template <class L, class... Options>
struct ActivationAmong<Activation<L>, Options...> {
  using type = L;
};

/// The activation layer among Options; void without one.
template <auto... Options>
using activation_of = typename ActivationAmong<std::remove_cvref_t<decltype(Options)>...>::type;

}  // namespace detail
}  // namespace lockstep
