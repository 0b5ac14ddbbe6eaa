/// \file
/// Pointwise activations. Invariant: such an op defines its scalar function and derivative, so host
/// devices need no separate kernel for it.
#pragma once

#include <concepts>

#include "lockstep/concepts/layer.hpp"

namespace lockstep {

/// An op y[i] = value(x[i]). The argument of `derivative` is y if `from_y`, otherwise x. Preferring
/// y allows x to be overwritten.
/// \code
///   struct SquareOp {                     // a user-defined activation: no kernel to write
///     static constexpr bool from_y = false;
///     Shape in;
///     constexpr Shape out() const { return in; }
///     template <class T> T value(T x) const { return x * x; }
///     template <class T> T derivative(T x) const { return 2 * x; }
///     bool operator==(const SquareOp&) const = default;
///   };
/// \endcode
template <class O>
concept Pointwise = Op<O> && requires(const O& op, double v) {
  { O::from_y } -> std::convertible_to<bool>;
  { op.value(v) } -> std::same_as<double>;
  { op.derivative(v) } -> std::same_as<double>;
};

}  // namespace lockstep
