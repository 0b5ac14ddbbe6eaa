/// \file
/// Scaled dot-product attention of several heads: the part of the attention layers between their
/// projections. Invariant: no device stores an array of heads x queries x keys. A row of scores is
/// computed in blocks of keys, with its running maximum and sum, and again in backward from the
/// logarithm of the sum (Dao et al., "FlashAttention", 2022).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/layers/attention/attention_options.hpp"

namespace lockstep {

/// The numbers of an attention layer that do not depend on shapes.
struct AttentionRules {
  static constexpr std::string_view members = "dropout use_causal_mask sliding_window rotary";
  float dropout = 0;
  bool causal = false;
  int window = 0;  ///< 0: none
  Rotary rotary{};
  bool operator==(const AttentionRules&) const = default;
};

/// o[i, h] = sum over j of p[h, i, j] v[j, g], where p[h, i, j] = softmax over j of (q[i, h] . k[j,
/// g]) / sqrt(key_dim) and g = floor(h kv_heads / heads): consecutive heads share keys and values.
/// A pair (i, j) that a mask excludes has p = 0, and a row without any key has o = 0. A row with keys
/// whose scores are all -infinity has o = NaN, the softmax of such scores.
///
/// In training with dropout, p[h, i, j] is 0 where a draw is below the rate, and otherwise divided by
/// 1 - rate. The draw is word j % 4 of Philox block (floor(j / 4), h queries + i) of the stream
/// `ordinal of the example`, under Dropout's key, on all devices.
struct DotProductAttentionOp {
  int queries = 1, keys = 1, heads = 1, kv_heads = 1, key_dim = 1, value_dim = 1;
  AttentionRules rules{};
  bool masks_pairs = false;  ///< the call has an array of the pairs (i, j) that count

  /// The keys [first, last) that query i attends to, before the mask of the keys.
  struct Keys {
    int first, last;
  };
  constexpr Keys keys_of(int i) const {
    int first = 0, last = keys;
    if (rules.causal) last = std::min(last, i + 1);
    if (rules.window > 0) {
      first = std::max(first, i - rules.window + 1);
      last = std::min(last, i + rules.window);
    }
    return {std::min(first, last), last};
  }
  /// Query heads that share one head of keys and values.
  constexpr int heads_per_key() const { return heads / kv_heads; }
  // Elements of q, k, v and o, and rows of scores, of one example.
  constexpr std::size_t q_size() const { return product(queries, heads, key_dim); }
  constexpr std::size_t k_size() const { return product(keys, kv_heads, key_dim); }
  constexpr std::size_t v_size() const { return product(keys, kv_heads, value_dim); }
  constexpr std::size_t o_size() const { return product(queries, heads, value_dim); }
  constexpr std::size_t rows() const { return product(queries, heads, 1); }
  /// Multiplications and additions of one example; a mask leaves out some of them.
  constexpr double flops() const {
    double pairs = 0;
    for (int i = 0; i < queries; ++i) pairs += keys_of(i).last - keys_of(i).first;
    return 2.0 * heads * (key_dim + value_dim) * pairs;
  }
  bool operator==(const DotProductAttentionOp&) const = default;

 private:
  static constexpr std::size_t product(int a, int b, int c) {
    return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c);
  }
};

/// The operands of Kernel<DotProductAttentionOp, D>, each with a leading dimension of step.count.
/// Forward writes o and log_sums, backward reads them.
template <class D>
struct AttentionIo {
  using T = typename D::real;
  using A = ActivationOf<D>;
  const StepContext& step;
  typename D::Context& device;
  std::uint64_t key;  ///< of the layer, for the draws of dropout
  const A* q;         ///< (queries, heads, key_dim)
  const A* k;         ///< (keys, kv_heads, key_dim)
  const A* v;         ///< (keys, kv_heads, value_dim)
  /// (keys), 0 for a key that no query attends to; or null
  const A* mask;
  /// (queries), 0 for a query that attends to no key; or null
  const A* query_mask;
  /// (queries, keys), 0 for a pair that does not count; if `masks_pairs`
  const A* pair_mask;
  A* o;  ///< (queries, heads, value_dim)
  /// (heads, queries): log of the sum of exp(score) over the row's keys; infinite if it has none
  T* log_sums;
  std::byte* scratch;
  // Backward alone.
  const A* d_o;
  A* dq;
  A* dk;
  A* dv;
};

}  // namespace lockstep
