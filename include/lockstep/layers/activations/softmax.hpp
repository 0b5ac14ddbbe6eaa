/// \file
/// Softmax and log-softmax over the last axis.
#pragma once

#include "lockstep/concepts/layer.hpp"

namespace lockstep {

/// y[.., k] = exp(x[.., k]) / sum over j of exp(x[.., j]); dx = y (dy - sum(dy y)).
struct SoftmaxOp {
  Shape in;
  constexpr Shape out() const { return in; }
  bool operator==(const SoftmaxOp&) const = default;
};

/// y = log softmax(x); dx = dy - exp(y) sum(dy).
struct LogSoftmaxOp {
  Shape in;
  constexpr Shape out() const { return in; }
  bool operator==(const LogSoftmaxOp&) const = default;
};

/// Keras' Softmax. Shape unchanged. For training, prefer logits and
/// SparseCategoricalCrossentropy{.from_logits = true}, which is numerically more stable.
struct Softmax : ParameterlessLayer<SoftmaxOp> {
  static constexpr std::string_view name = "softmax";
  static constexpr bool supports_masking = true;
  static constexpr bool accepts(Shape in) { return in.rank >= 1; }
};

/// Keras' log_softmax. Shape unchanged.
struct LogSoftmax : ParameterlessLayer<LogSoftmaxOp> {
  static constexpr std::string_view name = "log_softmax";
  static constexpr bool supports_masking = true;
  static constexpr bool accepts(Shape in) { return in.rank >= 1; }
};

static_assert(Layer<Softmax> && Layer<LogSoftmax>);

}  // namespace lockstep
