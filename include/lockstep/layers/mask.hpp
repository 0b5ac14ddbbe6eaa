/// \file
/// Masks of padded steps: values of a graph, one number for each step, which follow the value that
/// they belong to.
/// \code
///   Embedding<V, U, mask_zero>     makes a mask from its input: MakesMask
///   Dropout, Dense, ...            pass on the mask of their input: PassesMask
///   GlobalAveragePooling1D         has the mask as a second operand: ReadsMask
///   LSTM, MultiHeadAttention, ...  have the masks of all operands after them: ReadsMasks
///   Multiply, Maximum, Minimum     have one mask for each operand, if one of them has a mask:
///                                  ReadsEachMask
/// \endcode
/// Any other layer drops the mask. Invariant: a model without a layer that makes a mask has no
/// nodes, kernels and memory for masks.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "lockstep/concepts/layer.hpp"
#include "lockstep/core/type_list.hpp"

namespace lockstep {

/// y[n, s] = 1 if x[n, s, ..] differs from `value` in some element, otherwise 0. Of two masks: 1
/// where one of them is, or where both are.
struct MaskOp {
  static constexpr std::string_view members = "in mask_value .merges .both";
  Shape in;
  float value = 0;
  bool merges = false, both = false;
  constexpr Shape out() const { return shape(in[0]); }
  /// Elements of a step.
  constexpr std::size_t width() const { return in.size() / static_cast<std::size_t>(in[0]); }
  constexpr bool has_gradient(std::size_t) const { return false; }
  bool operator==(const MaskOp&) const = default;
};

namespace detail {

/// The op of a layer that reads a mask, if it is of another type than without a mask: a network has
/// it in its list of ops only if a layer makes a mask.
template <class O>
struct MaskedForm {
  using type = List<>;
};
/// Ops, with their masked forms if there is a MaskOp.
template <class... Ops>
struct WithMasks {
  using type = List<Ops...>;
};
template <class... Ops>
  requires(std::is_same_v<Ops, MaskOp> || ...)
struct WithMasks<Ops...> {
  using type = Union<List<Ops...>, typename MaskedForm<Ops>::type...>;
};
template <class Ops>
struct WithMasksOf;
template <class... Ops>
struct WithMasksOf<List<Ops...>> : WithMasks<Ops...> {};

/// A layer that makes a mask from its input.
template <class L>
concept MakesMask = requires {
  { L::mask(Shape{}) } -> std::same_as<MaskOp>;
};
/// A layer that has the mask of its input as second operand.
template <class L>
concept ReadsMask = requires {
  requires L::reads_mask;
  L::op(Shape{}, Shape{});
};
/// A layer whose op takes the places among the operands of the first operand's mask, and of the mask of
/// the others, or of the first one if there are none; 0: there is no mask.
template <class L>
concept ReadsMasks =
    requires(decltype(L::op(Shape{})) op) { op.read_masks(std::size_t{}, std::size_t{}); };
/// A layer of several operands whose op has another form with a mask of each operand after them.
template <class L>
concept ReadsEachMask = requires { L::masked(L::op(Shape{}, Shape{})); };
/// A layer whose output has the mask of its input.
template <class L>
concept PassesMask = requires { requires L::supports_masking; };
/// A layer with several operands that may put their steps one after the other, and so their masks.
template <class L>
concept JoinsSteps = requires {
  { L::joins_steps(Shape{}) } -> std::same_as<bool>;
};

}  // namespace detail
}  // namespace lockstep
