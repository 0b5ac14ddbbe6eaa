/// \file
/// Attention whose heads share keys and values in groups.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/attention/projected_attention.hpp"

namespace lockstep {

/// As MultiHeadAttentionOp, where query head h reads the keys and values of head floor(h kv_heads /
/// heads).
struct GroupedQueryAttentionOp {
  static constexpr std::string_view members =
      "in num_query_heads num_key_value_heads head_dim use_bias rules sources";
  Shape in;  // (steps, features)
  int heads = 1, kv_heads = 1, head_dim = 1;
  bool bias = true;
  AttentionRules rules{};
  AttentionSources sources{};

  constexpr Shape out() const { return in; }
  constexpr DotProductAttentionOp attention() const {
    return {in[0], sources.value_of(in)[0],   heads, kv_heads, head_dim, head_dim,
            rules, sources.attention_mask > 1};
  }
  constexpr detail::AttentionProducts products() const {
    return detail::attention_products(in, sources, attention(), in[1], bias);
  }
  constexpr std::size_t weights() const { return products().weights(); }
  constexpr double flops() const { return products().flops() + attention().flops(); }
  constexpr bool has_gradient(std::size_t operand) const {
    return operand <= sources.key_operand();
  }
  constexpr void read_masks(std::size_t query, std::size_t key) {
    sources.query_mask = query;
    sources.key_mask = key;
  }
  bool operator==(const GroupedQueryAttentionOp&) const = default;
};

namespace detail {
template <int Heads, int KvHeads, int HeadDim, class... Options>
struct CheckGroupedQueryAttention {
  static_assert(Heads > 0 && KvHeads > 0 && HeadDim > 0,
                "lockstep::GroupedQueryAttention: heads and head_dim must be at least 1; write "
                "GroupedQueryAttention<8, 2, 64>");
  static_assert(KvHeads < 1 || Heads % KvHeads == 0,
                "lockstep::GroupedQueryAttention: the number of query heads is not a multiple of "
                "the number of key and value heads");
  static_assert(
      (is_attention_option<Options> && ...),
      "lockstep::GroupedQueryAttention: an option is not supported; it accepts dropout, "
      "causal, attention_mask, sliding_window, rotary, use_bias, initializers and regularizers");
};
}  // namespace detail

/// Keras' GroupQueryAttention (Ainslie et al., 2023), with the operands of MultiHeadAttention: `Heads`
/// query heads of size `HeadDim`, of which Heads / KvHeads consecutive ones share a head of keys and
/// values. The shared heads are not copied.
///
/// Options: ls::dropout (0), ls::causal, ls::attention_mask, ls::sliding_window, ls::rotary,
/// ls::no_bias, initializers and regularizers of all kernels and biases. Input (steps, f), output
/// (steps, f); parameters as those of MultiHeadAttention, with `KvHeads` heads in `key` and `value`.
/// \code
///   GroupedQueryAttention<32, 8, 64, ls::causal, ls::rotary(), ls::no_bias>
/// \endcode
template <int Heads, int KvHeads, int HeadDim, auto... Options>
struct GroupedQueryAttention : detail::AttentionOperands<Options...> {
  static constexpr std::string_view name = "grouped_query_attention";

  template <std::same_as<Shape>... More>
  static constexpr GroupedQueryAttentionOp op(Shape in, More... more) {
    return {in,
            Heads,
            KvHeads,
            HeadDim,
            detail::has_bias<Options...>(),
            detail::attention_rules<Options...>(),
            GroupedQueryAttention::sources(more...)};
  }
  template <class... Shapes>
  static constexpr std::array<Parameter, 8> parameters(Shapes... operands) {
    const auto o = op(operands...);
    return detail::attention_parameters<Options...>(o.products(), o.attention());
  }

  static_assert(
      sizeof(detail::CheckGroupedQueryAttention<Heads, KvHeads, HeadDim,
                                                std::remove_cvref_t<decltype(Options)>...>) > 0 &&
      sizeof(detail::CheckAttentionRules<detail::attention_rules<Options...>(), HeadDim>) > 0);
};

static_assert(Layer<GroupedQueryAttention<4, 2, 8>> &&
              GroupedQueryAttention<4, 2, 8, no_bias>::op(shape(5, 16)).weights() ==
                  16 * (32 + 16 + 16 + 32));

}  // namespace lockstep
