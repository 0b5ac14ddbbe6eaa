/// \file
/// Ops that merge two values element by element. Invariant: such an op defines its scalar function
/// and both gradients, so host devices need no separate kernel for it.
#pragma once

#include <concepts>

#include "lockstep/concepts/layer.hpp"

namespace lockstep {

/// An op y[i] = value(x[i], x2[i]) with dx[i] = dx(dy[i], x[i], x2[i]) and dx2[i] = dx2(dy[i],
/// x[i], x2[i]). Unless `reads_inputs`, the gradients do not depend on x and x2, which are then 0,
/// so x can be overwritten by y.
/// \code
///   struct DifferenceOp {
///     static constexpr bool reads_inputs = false;
///     Shape in;
///     constexpr Shape out() const { return in; }
///     template <class T> T value(T a, T b) const { return a - b; }
///     template <class T> T dx(T dy, T, T) const { return dy; }
///     template <class T> T dx2(T dy, T, T) const { return -dy; }
///     bool operator==(const DifferenceOp&) const = default;
///   };
/// \endcode
template <class O>
concept Pairwise = Op<O> && requires(const O& op, double v) {
  { O::reads_inputs } -> std::convertible_to<bool>;
  { op.value(v, v) } -> std::same_as<double>;
  { op.dx(v, v, v) } -> std::same_as<double>;
  { op.dx2(v, v, v) } -> std::same_as<double>;
};

/// Base of rules that merge branches of equal shapes by an op of this shape.
template <class TheOp>
struct PairwiseRule {
  static constexpr bool accepts(Shape a, Shape b) { return a == b; }
  static constexpr TheOp op(Shape a, Shape) { return {a}; }
};

}  // namespace lockstep
