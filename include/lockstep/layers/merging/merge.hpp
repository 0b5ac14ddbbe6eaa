/// \file
/// Ops that merge any number of values of equal shapes, element by element, and their forms for values
/// with masks. Invariant: such an op defines its scalar functions, so host devices need no separate
/// kernel for it.
#pragma once

#include <concepts>
#include <cstddef>

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/mask.hpp"

namespace lockstep {

/// An op y[i] = finish(fold(..fold(x[0][i], x[1][i]).., x[n - 1][i])), from left to right, over n =
/// operands() values. dx(dy, x, k) is the gradient of operand k, where x(j) is the element of operand
/// j. Unless `reads_inputs`, the gradients do not depend on x, which then must not be called, and x[0]
/// can be overwritten by y.
/// \code
///   struct SumOp {
///     static constexpr std::string_view members = "in ?.further";
///     static constexpr bool reads_inputs = false;
///     Shape in;
///     int further = 1;  // operands after the first
///     constexpr Shape out() const { return in; }
///     constexpr std::size_t operands() const { return static_cast<std::size_t>(further) + 1; }
///     template <class T> T fold(T sum, T x) const { return sum + x; }
///     template <class T> T finish(T sum) const { return sum; }
///     template <class T, class X> T dx(T dy, const X&, std::size_t) const { return dy; }
///     bool operator==(const SumOp&) const = default;
///   };
/// \endcode
template <class O>
concept Merge = Op<O> && requires(const O& op, double v, double (*x)(std::size_t)) {
  { O::reads_inputs } -> std::convertible_to<bool>;
  { op.operands() } -> std::same_as<std::size_t>;
  { op.fold(v, v) } -> std::same_as<double>;
  { op.finish(v) } -> std::same_as<double>;
  { op.dx(v, x, std::size_t{0}) } -> std::same_as<double>;
};

/// A merge that leaves out an operand at its padded steps. At a step that is padding in all operands y
/// is x[0] if it `keeps_padded`, otherwise 0.
template <class O>
concept LeavesOutPadded = Merge<O> && requires {
  { O::keeps_padded } -> std::convertible_to<bool>;
};

/// The merge of the operands in whose masks the step is 1, in this order. The operands are those of M
/// and then the mask of each of them.
template <LeavesOutPadded M>
struct MaskedMergeOp {
  M merge;
  constexpr Shape out() const { return merge.in; }
  /// Values that are merged.
  constexpr std::size_t values() const { return merge.operands(); }
  /// Elements of a step.
  constexpr std::size_t width() const {
    return merge.in.size() / static_cast<std::size_t>(merge.in[0]);
  }
  /// The merge of `count` values, at least one.
  constexpr M of(std::size_t count) const {
    M some = merge;
    some.further = static_cast<int>(count) - 1;
    return some;
  }
  constexpr bool has_gradient(std::size_t operand) const { return operand < values(); }
  bool operator==(const MaskedMergeOp&) const = default;
};
template <LeavesOutPadded M>
struct detail::MaskedForm<M> {
  using type = List<MaskedMergeOp<M>>;
};

namespace detail {
/// dx of an op whose fold keeps one of its two arguments, by `keeps_first`: dy for the operand that is
/// kept in the end, 0 for the others.
template <class T, class X, class Rule>
constexpr T gradient_of_kept(T dy, const X& x, std::size_t k, std::size_t operands,
                             const Rule& keeps_first) {
  std::size_t kept = 0;
  T value = x(0);
  for (std::size_t j = 1; j < operands; ++j) {
    const T v = x(j);
    if (keeps_first(value, v)) continue;
    value = v;
    kept = j;
  }
  return kept == k ? dy : T(0);
}
}  // namespace detail

/// Base of rules that merge two branches or more of equal shapes by an op of this shape.
template <class TheOp>
struct MergeRule {
  static constexpr bool accepts(Shape first, Shape second, std::same_as<Shape> auto... more) {
    return first == second && ((first == more) && ...);
  }
  static constexpr TheOp op(Shape first, Shape, std::same_as<Shape> auto... more) {
    return {first, static_cast<int>(sizeof...(more)) + 1};
  }
  /// The form for operands with masks.
  static constexpr auto masked(const TheOp& op)
    requires LeavesOutPadded<TheOp>
  {
    return MaskedMergeOp<TheOp>{op};
  }
};

}  // namespace lockstep
