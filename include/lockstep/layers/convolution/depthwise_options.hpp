/// \file
/// Options of the layers with depthwise convolutions.
#pragma once

#include "lockstep/layers/named_rules.hpp"

namespace lockstep {

/// Option created by `depth_multiplier`.
struct DepthMultiplier {
  int value = 1;
  bool operator==(const DepthMultiplier&) const = default;
};
/// Output channels per input channel: `DepthwiseConv2D<3, ls::depth_multiplier(2)>`.
constexpr DepthMultiplier depth_multiplier(int value) { return {value}; }

/// Options created by `depthwise_initializer` and `pointwise_initializer`.
template <class I>
struct DepthwiseInitializer {
  I rule;
};
template <class I>
struct PointwiseInitializer {
  I rule;
};
/// The initializer of the depthwise kernel.
template <InitializerPolicy I>
constexpr DepthwiseInitializer<I> depthwise_initializer(I rule) {
  return {rule};
}
/// The initializer of the pointwise kernel.
template <InitializerPolicy I>
constexpr PointwiseInitializer<I> pointwise_initializer(I rule) {
  return {rule};
}

/// Options created by `depthwise_regularizer` and `pointwise_regularizer`.
template <class R>
struct DepthwiseRegularizer {
  R rule;
};
template <class R>
struct PointwiseRegularizer {
  R rule;
};
/// The regularizer of the depthwise kernel.
template <RegularizerPolicy R>
constexpr DepthwiseRegularizer<R> depthwise_regularizer(R rule) {
  return {rule};
}
/// The regularizer of the pointwise kernel.
template <RegularizerPolicy R>
constexpr PointwiseRegularizer<R> pointwise_regularizer(R rule) {
  return {rule};
}

namespace detail {

/// Fans of a depthwise kernel (h, w, channels, multiplier). Keras counts them like those of a
/// convolution.
constexpr Fans depthwise_fans(int field, int channels, int multiplier) {
  return {field * channels, field * multiplier};
}

}  // namespace detail
}  // namespace lockstep
