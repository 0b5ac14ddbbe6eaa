/// \file
/// A causal attention layer that continues a sequence: its queries are the newest steps, its keys and
/// values those of all steps so far, which are cached. Invariants: the examples of a call are
/// consecutive steps of one sequence, and the ordinal of the first one is its position; a cached key is
/// already rotated.
///
///     keys    | step 0 | step 1 | .. | the call's steps | not computed yet |   (context, heads, size)
///     values  | step 0 | step 1 | .. | the call's steps | not computed yet |
#pragma once

#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/layers/attention/projected_attention.hpp"

namespace lockstep {

/// o of DotProductAttentionOp for one more step: q is that of the step, k and v are cached.
struct CachedDotProductOp {
  DotProductAttentionOp whole{};  ///< over all steps of the context

  constexpr std::size_t context() const { return static_cast<std::size_t>(whole.keys); }
  // Elements of the keys and values of one step.
  constexpr std::size_t key_size() const { return size(whole.kv_heads, whole.key_dim); }
  constexpr std::size_t value_size() const { return size(whole.kv_heads, whole.value_dim); }
  // Elements that are not cached.
  constexpr std::size_t q_size() const { return size(whole.heads, whole.key_dim); }
  constexpr std::size_t k_size() const { return 0; }
  constexpr std::size_t v_size() const { return 0; }
  constexpr std::size_t o_size() const { return size(whole.heads, whole.value_dim); }
  constexpr std::size_t rows() const { return 0; }
  /// Those of the last step of a context, which attends to the most keys.
  constexpr double flops() const {
    const DotProductAttentionOp::Keys keys = whole.keys_of(whole.queries - 1);
    return 2.0 * whole.heads * (whole.key_dim + whole.value_dim) * (keys.last - keys.first);
  }
  bool operator==(const CachedDotProductOp&) const = default;

 private:
  static constexpr std::size_t size(int heads, int each) {
    return static_cast<std::size_t>(heads) * static_cast<std::size_t>(each);
  }
};

/// MultiHeadAttention or GroupedQueryAttention of one more step, in inference.
struct CachedAttentionOp {
  static constexpr AttentionSources sources{};
  Shape in;  // (1, features)
  CachedDotProductOp core{};
  int outputs = 1;
  bool bias = true;

  /// Continues the sequences of `layer`, which must be causal and have one operand.
  static constexpr CachedAttentionOp of(const auto& layer) {
    return {shape(1, layer.in[1]), {layer.attention()}, layer.out()[1], layer.bias};
  }
  constexpr Shape out() const { return shape(1, outputs); }
  constexpr const CachedDotProductOp& attention() const { return core; }
  constexpr detail::AttentionProducts products() const {
    DotProductAttentionOp step = core.whole;
    step.queries = step.keys = 1;
    return detail::attention_products(in, sources, step, outputs, bias);
  }
  constexpr std::size_t weights() const { return products().weights(); }
  constexpr double flops() const { return products().flops() + core.flops(); }
  bool operator==(const CachedAttentionOp&) const = default;
};

}  // namespace lockstep
