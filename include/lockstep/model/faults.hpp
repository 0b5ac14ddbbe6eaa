/// \file
/// Error messages for invalid models. Invariant: a class of this file is instantiated only for a
/// model with the corresponding error, and nothing else depends on it, so the compiler reports
/// exactly one error.
#pragma once

#include "lockstep/core/type_list.hpp"
#include "lockstep/model/graph.hpp"

namespace lockstep::detail {

/// A shape as a type that compilers print briefly.
template <int... Extents>
struct shape_of {};  // NOLINT(readability-identifier-naming): read in errors
// With integers as parameters: g++ 12 crashes on aliases with a Shape as parameter.
template <int Rank, int A, int B, int C, int D>
struct ExtentsAsType {
  using type = shape_of<A, B, C, D>;
};
template <int A, int B, int C, int D>
struct ExtentsAsType<3, A, B, C, D> {
  using type = shape_of<A, B, C>;
};
template <int A, int B, int C, int D>
struct ExtentsAsType<2, A, B, C, D> {
  using type = shape_of<A, B>;
};
template <int A, int B, int C, int D>
struct ExtentsAsType<1, A, B, C, D> {
  using type = shape_of<A>;
};
template <Shape S>
struct ShapeAsType : ExtentsAsType<S.rank, S[0], S[1], S[2], S[3]> {};

template <class Layer, int Position, class Input>
struct Rejected {
  static_assert(always_false<Layer>,
                "lockstep::Sequential: 'Layer' at 'Position' does not accept 'Input', the shape "
                "that the layer before it "
                "produces");
};
template <class Layer, int Position, std::size_t Weights, std::size_t State, std::size_t OpWeights,
          std::size_t OpState>
struct ParametersDiffer {
  static_assert(
      always_false<Layer>,
      "lockstep::Layer: parameters() of 'Layer' at 'Position' has 'Weights' trainable "
      "and 'State' non-trainable values, but its op expects 'OpWeights' and 'OpState'; make "
      "parameters() match the op's weights() and state()");
};
template <class MainOutput, class SkipOutput>
struct BranchesDiffer {
  static_assert(always_false<MainOutput>,
                "lockstep::Residual: the main branch and the skip branch have different output "
                "shapes; add a projection to Skip, such as Conv2D<filters, 1, strides(s)>");
};
template <class FirstOutput, class SecondOutput>
struct BranchesDoNotJoin {
  static_assert(
      always_false<FirstOutput>,
      "lockstep::Parallel: the output shapes of two branches cannot be merged; Concatenate "
      "needs shapes that differ only on its axis, Dot axes of equal extents, the other "
      "rules equal shapes");
};
template <class Before, class After>
struct BlockChangesShape {
  static_assert(always_false<Before>,
                "lockstep::Repeat: the block changes the shape of its input; put such a block "
                "before Repeat");
};

template <class Received, class Declared>
struct InputDiffers {
  static_assert(
      always_false<Received>,
      "lockstep::Sequential: a block that begins with Input receives another shape; change "
      "its Input, or the layers before the block");
};
template <class Body>
struct EqualNames {
  static_assert(
      always_false<Body>,
      "lockstep::Sequential: a named block has the name of another layer or block next to "
      "it, such as 'decoder_1' next to two 'decoder'; rename one");
};

template <class FirstOperand, class SecondOperand>
struct OperandsDoNotJoin {
  static_assert(
      always_false<FirstOperand>,
      "lockstep::Graph: the shapes of two values that a statement merges do not fit; Concatenate "
      "needs shapes that differ only on its axis, Dot axes of equal extents, the other rules "
      "equal shapes");
};
template <class Layer>
struct SharedTypesDiffer {
  static_assert(always_false<Layer>,
                "lockstep::Shared: 'Layer' has the key of a layer of another type; layers with one "
                "key are the same layer: write the same type, or another key");
};
template <class Layer, class FirstInput, class SecondInput>
struct SharedParametersDiffer {
  static_assert(always_false<Layer>,
                "lockstep::Shared: 'Layer' would have parameters of other shapes for its second "
                "input than for its first; give all calls of a shared layer inputs for which they "
                "are equal");
};
template <class Input>
struct CannotTie {
  static_assert(
      always_false<Input>,
      "lockstep::TiedDense: no layer before it is Shared under this key and has as its weights one matrix with as many columns as the last axis of 'Input'; write Shared<key, Embedding<V, D>> before it, and Dense<D> if the axis differs");
};
template <class Body>
struct FrozenLater {
  static_assert(
      always_false<Body>,
      "lockstep::Frozen: the weights of a shared layer are frozen where it is called again, but "
      "train where it is called first; put Frozen around the first call");
};

template <class Body>
struct InBlocksNotLast {
  static_assert(
      always_false<Body>,
      "lockstep::InBlocks: the layer is not the last one of the network, or is in Recompute; end the "
      "network with it, outside of Recompute");
};
template <class Body>
struct NotInBlocks {
  static_assert(always_false<Body>,
                "lockstep::InBlocks: the layer is not Dense without an activation, nor TiedDense; "
                "leave the activation to the loss, with from_logits = true");
};

// The leaves of a model, indexed by position; instantiated only for an error at one of them.
template <class L>
struct LeavesOf {
  using type = List<L>;
};
template <class... Ls>
struct LeavesOf<List<Ls...>> : Concat<typename LeavesOf<Ls>::type...> {};
template <Composite L>
struct LeavesOf<L> : LeavesOf<typename L::children> {};
template <std::size_t I, class... Ls>
auto leaf(List<Ls...>) -> At<I, Ls...>;

template <class L, int Position, Shape In>
struct RejectionOf {
  using type = Rejected<L, Position, typename ShapeAsType<In>::type>;
};
template <class L, int Position, Shape In>
  requires requires { typename L::template Requires<In>; }
struct RejectionOf<L, Position, In> {
  using type = typename L::template Requires<In>;  // the layer's own message
};

template <class L, const Failure& F>
struct OperandRejectionOf {
  using type =
      OperandsDoNotJoin<typename ShapeAsType<F.first>::type, typename ShapeAsType<F.second>::type>;
};
template <class L, const Failure& F>
  requires requires { typename L::template RequiresOperands<F.first, F.second>; }
struct OperandRejectionOf<L, F> {
  using type = typename L::template RequiresOperands<F.first, F.second>;  // the layer's own message
};

/// Base class that emits the error of an invalid model; empty for a valid one.
template <class Built, class Body, Failure::Kind = Built::failure.kind>
struct Verdict {};
template <class Built, class Body>
struct Verdict<Built, Body, Failure::layer_rejects>
    : RejectionOf<decltype(leaf<static_cast<std::size_t>(Built::failure.position)>(
                      typename LeavesOf<Body>::type{})),
                  Built::failure.position, Built::failure.first>::type {};
template <class L, const Failure& F>
using ParametersDifferIn =
    ParametersDiffer<L, F.position, F.weights, F.state, F.op_weights, F.op_state>;
template <class Built, class Body>
struct Verdict<Built, Body, Failure::parameters_differ>
    : ParametersDifferIn<decltype(leaf<static_cast<std::size_t>(Built::failure.position)>(
                             typename LeavesOf<Body>::type{})),
                         Built::failure> {};
template <class Built, class Body>
struct Verdict<Built, Body, Failure::branches_differ>
    : BranchesDiffer<typename ShapeAsType<Built::failure.first>::type,
                     typename ShapeAsType<Built::failure.second>::type> {};
template <class Built, class Body>
struct Verdict<Built, Body, Failure::branches_do_not_join>
    : BranchesDoNotJoin<typename ShapeAsType<Built::failure.first>::type,
                        typename ShapeAsType<Built::failure.second>::type> {};
template <class Built, class Body>
struct Verdict<Built, Body, Failure::block_changes_shape>
    : BlockChangesShape<typename ShapeAsType<Built::failure.first>::type,
                        typename ShapeAsType<Built::failure.second>::type> {};

template <class Built, class Body>
struct Verdict<Built, Body, Failure::input_differs>
    : InputDiffers<typename ShapeAsType<Built::failure.first>::type,
                   typename ShapeAsType<Built::failure.second>::type> {};
template <class Built, class Body>
struct Verdict<Built, Body, Failure::equal_names> : EqualNames<Body> {};
template <class Built, class Body>
struct Verdict<Built, Body, Failure::operands_do_not_join>
    : OperandRejectionOf<decltype(leaf<static_cast<std::size_t>(Built::failure.position)>(
                             typename LeavesOf<Body>::type{})),
                         Built::failure>::type {};
template <class Built, class Body>
struct Verdict<Built, Body, Failure::shared_types_differ>
    : SharedTypesDiffer<decltype(leaf<static_cast<std::size_t>(Built::failure.position)>(
          typename LeavesOf<Body>::type{}))> {};
template <class Built, class Body>
struct Verdict<Built, Body, Failure::shared_parameters_differ>
    : SharedParametersDiffer<decltype(leaf<static_cast<std::size_t>(Built::failure.position)>(
                                 typename LeavesOf<Body>::type{})),
                             typename ShapeAsType<Built::failure.first>::type,
                             typename ShapeAsType<Built::failure.second>::type> {};
template <class Built, class Body>
struct Verdict<Built, Body, Failure::cannot_tie>
    : CannotTie<typename ShapeAsType<Built::failure.first>::type> {};
template <class Built, class Body>
struct Verdict<Built, Body, Failure::frozen_later> : FrozenLater<Body> {};
template <class Built, class Body>
struct Verdict<Built, Body, Failure::in_blocks_not_last> : InBlocksNotLast<Body> {};
template <class Built, class Body>
struct Verdict<Built, Body, Failure::not_in_blocks> : NotInBlocks<Body> {};

}  // namespace lockstep::detail
