/// \file
/// Options of the layers that filter each channel by itself.
#pragma once

#include <type_traits>

#include "lockstep/layers/initializers.hpp"
#include "lockstep/layers/regularizers.hpp"

namespace lockstep {

/// Made by `depth_multiplier`.
struct DepthMultiplier {
  int value = 1;
  bool operator==(const DepthMultiplier&) const = default;
};
/// Results of each channel: `DepthwiseConv2D<3, ls::depth_multiplier(2)>`.
constexpr DepthMultiplier depth_multiplier(int value) { return {value}; }

/// Made by `depthwise_initializer`, `pointwise_initializer`.
template <class I>
struct DepthwiseInitializer {
  I rule;
};
template <class I>
struct PointwiseInitializer {
  I rule;
};
template <InitializerPolicy I>
constexpr DepthwiseInitializer<I> depthwise_initializer(I rule) {
  return {rule};
}
template <InitializerPolicy I>
constexpr PointwiseInitializer<I> pointwise_initializer(I rule) {
  return {rule};
}

/// Made by `depthwise_regularizer`, `pointwise_regularizer`.
template <class R>
struct DepthwiseRegularizer {
  R rule;
};
template <class R>
struct PointwiseRegularizer {
  R rule;
};
template <RegularizerPolicy R>
constexpr DepthwiseRegularizer<R> depthwise_regularizer(R rule) {
  return {rule};
}
template <RegularizerPolicy R>
constexpr PointwiseRegularizer<R> pointwise_regularizer(R rule) {
  return {rule};
}

namespace detail {

/// Whether O is a `Named<Rule>`.
template <class O, template <class> class Named>
inline constexpr bool is_rule_for = false;
template <class Rule, template <class> class Named>
inline constexpr bool is_rule_for<Named<Rule>, Named> = true;

/// The initializer that is a `Named` option, else `value`.
template <template <class> class Named, auto... Options>
constexpr Initializer initializer_for(Initializer value) {
  [[maybe_unused]] auto visit = [&]<auto O>() {
    if constexpr (is_rule_for<std::remove_cvref_t<decltype(O)>, Named>) value = &initialize<O.rule>;
  };
  (visit.template operator()<Options>(), ...);
  return value;
}

/// The penalty that is a `Named` option.
template <template <class> class Named, auto... Options>
constexpr Penalty penalty_for() {
  Penalty p;
  [[maybe_unused]] auto visit = [&]<auto O>() {
    if constexpr (is_rule_for<std::remove_cvref_t<decltype(O)>, Named>) p = O.rule.penalty();
  };
  (visit.template operator()<Options>(), ...);
  return p;
}

/// Keras' fans of a depthwise kernel (h, w, channels, multiplier), which it counts like those of a
/// convolution.
constexpr Fans depthwise_fans(int field, int channels, int multiplier) {
  return {field * channels, field * multiplier};
}

}  // namespace detail
}  // namespace lockstep
