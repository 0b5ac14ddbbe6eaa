/// \file
/// The op of one step of a sequence, for each op that acts on steps alone, and for causal attention.
/// Invariant: for an op of (steps, ..), `OneStep<O>::of(op)` has the weights of `op` and computes from
/// step t of its input, and for attention from the cached steps before, step t of its output.
#pragma once

#include <type_traits>
#include <utility>

#include "lockstep/core/shape.hpp"
#include "lockstep/layers/activations/pointwise.hpp"
#include "lockstep/layers/activations/softmax.hpp"
#include "lockstep/layers/attention/cached_attention.hpp"
#include "lockstep/layers/attention/grouped_query_attention.hpp"
#include "lockstep/layers/attention/multi_head_attention.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/embedding.hpp"
#include "lockstep/layers/merging/concatenate.hpp"
#include "lockstep/layers/merging/merge.hpp"
#include "lockstep/layers/merging/pairwise.hpp"
#include "lockstep/layers/normalization/batch_normalization.hpp"
#include "lockstep/layers/normalization/layer_normalization.hpp"
#include "lockstep/layers/normalization/rms_normalization.hpp"
#include "lockstep/layers/options.hpp"
#include "lockstep/layers/position_embedding.hpp"
#include "lockstep/layers/position_step.hpp"
#include "lockstep/layers/recurrent/time_distributed.hpp"
#include "lockstep/layers/regularization/dropout.hpp"
#include "lockstep/layers/regularization/gaussian_noise.hpp"
#include "lockstep/layers/tied_dense.hpp"

namespace lockstep {
template <class C>
struct FunctionOp;  // layers/function.hpp
}

namespace lockstep::detail {

/// The shape of one step of (steps, ..).
constexpr Shape one_step_of(Shape s) {
  s.extent[0] = 1;
  return s;
}

/// `type`: the op of one step; `fits(op)`: whether `op` has one; `of(op)`: it. Not defined for ops that
/// read other steps.
template <class O>
struct OneStep;
template <class O>
concept HasOneStep = requires { sizeof(OneStep<O>); };

/// Base of those of ops whose step differs in `in` alone.
template <class O>
struct OneStepOfInput {
  using type = O;
  static constexpr O of(O op) {
    op.in = one_step_of(op.in);
    return op;
  }
};

/// A custom op that states its form for one step: `MyOp one_step() const`.
template <class O>
concept StatesOneStep = requires(const O& op) { op.one_step(); };
template <StatesOneStep O>
struct OneStep<O> {
  using type = std::remove_cvref_t<decltype(std::declval<const O&>().one_step())>;
  static constexpr bool fits(const O&) { return true; }
  static constexpr type of(const O& op) { return op.one_step(); }
};

/// Ops over the last axis, whose only shape is `in`.
template <class O>
inline constexpr bool acts_on_last_axis =
    is_any_of<O, SoftmaxOp, LogSoftmaxOp, LayerNormalizationOp, RMSNormalizationOp,
              BatchNormalizationOp, DropoutOp, GaussianNoiseOp>;
template <class C>
inline constexpr bool acts_on_last_axis<FunctionOp<C>> = true;
/// Ops of each element, whose only shape is `in`.
template <class O>
concept ElementWise = Pointwise<O> || Pairwise<O> || Merge<O>;

template <class O>
  requires((ElementWise<O> || acts_on_last_axis<O>) && !StatesOneStep<O> &&
           requires(O op) { op.in = Shape{}; })
struct OneStep<O> : OneStepOfInput<O> {
  static constexpr bool fits(const O& op) { return op.in.rank > (ElementWise<O> ? 0 : 1); }
};
template <class O>
  requires is_any_of<O, DenseOp, TiedDenseOp>
struct OneStep<O> {
  using type = O;
  static constexpr bool fits(const O& op) { return op.leading.rank > 0; }
  static constexpr O of(O op) {
    op.leading = one_step_of(op.leading);
    return op;
  }
};
template <>
struct OneStep<ConcatenateOp> : OneStepOfInput<ConcatenateOp> {
  static constexpr bool fits(const ConcatenateOp& op) { return op.place() > 0; }
};
template <class O>
struct OneStep<TimeDistributedOp<O>> : OneStepOfInput<TimeDistributedOp<O>> {
  static constexpr bool fits(const TimeDistributedOp<O>&) { return true; }
};
template <>
struct OneStep<EmbeddingOp> : OneStepOfInput<EmbeddingOp> {
  static constexpr bool fits(const EmbeddingOp& op) { return !op.reads_row(); }
};
template <>
struct OneStep<PositionEmbeddingOp> {
  using type = PositionStepOp;
  static constexpr bool fits(const PositionEmbeddingOp&) { return true; }
  static constexpr PositionStepOp of(const PositionEmbeddingOp& op) {
    return {one_step_of(op.in), op.positions};
  }
};
/// Causal self-attention without masks.
template <class O>
  requires is_any_of<O, MultiHeadAttentionOp, GroupedQueryAttentionOp>
struct OneStep<O> {
  using type = CachedAttentionOp;
  static constexpr bool fits(const O& op) {
    return op.rules.causal && op.sources == AttentionSources{};
  }
  static constexpr CachedAttentionOp of(const O& op) { return CachedAttentionOp::of(op); }
};

}  // namespace lockstep::detail
