/// \file
/// Attention of several heads.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/attention/projected_attention.hpp"

namespace lockstep {

/// y = o kernel_o + bias_o, where o is the scaled dot-product attention of q = query kernel_q +
/// bias_q, and of k and v alike, in each head.
struct MultiHeadAttentionOp {
  static constexpr std::string_view members =
      "in num_heads key_dim value_dim output_shape use_bias rules sources";
  Shape in;  // (steps, features)
  int heads = 1, key_dim = 1, value_dim = 1, outputs = 1;
  bool bias = true;
  AttentionRules rules{};
  AttentionSources sources{};

  constexpr Shape out() const { return shape(in[0], outputs); }
  constexpr DotProductAttentionOp attention() const {
    return {in[0], sources.value_of(in)[0],   heads, heads, key_dim, value_dim,
            rules, sources.attention_mask > 1};
  }
  constexpr detail::AttentionProducts products() const {
    return detail::attention_products(in, sources, attention(), outputs, bias);
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
  bool operator==(const MultiHeadAttentionOp&) const = default;
};

namespace detail {
template <int Heads, int KeyDim, int Values, int Outputs, class... Options>
struct CheckMultiHeadAttention {
  static_assert(Heads > 0 && KeyDim > 0 && Values >= 0 && Outputs >= 0,
                "lockstep::MultiHeadAttention: heads, key_dim, value_dim and output_shape must be "
                "at least 1; write MultiHeadAttention<8, 64>");
  static_assert(
      ((is_attention_option<Options> || is_any_of<Options, ValueDim, OutputShape>) && ...),
      "lockstep::MultiHeadAttention: an option is not supported; it accepts value_dim, "
      "output_shape, dropout, causal, attention_mask, sliding_window, rotary, use_bias, initializers and "
      "regularizers");
};
}  // namespace detail

/// Keras' MultiHeadAttention (Vaswani et al., 2017): `Heads` heads with keys of size `KeyDim`. Scores
/// are divided by sqrt(KeyDim). In a Sequential a value attends to itself; in a Graph the layer has the
/// operands (query, value) or (query, value, key), each (steps, features), with Keras' top-left causal
/// mask if the steps differ. Masks of the operands exclude padded steps; a query that attends to no key
/// has the bias of the output as result. With ls::attention_mask there is one more operand, the last
/// one: (steps of the query, steps of the key), 0 for a pair that does not attend. It has no gradient,
/// and holds for all heads.
///
/// Options: ls::value_dim (KeyDim), ls::output_shape (the input's features), ls::dropout (0),
/// ls::causal, ls::attention_mask, ls::sliding_window, ls::rotary, ls::no_bias, initializers and
/// regularizers of all kernels and biases. Input (steps, f), output (steps, output_shape). Parameters,
/// with N heads of size H: `query/kernel` (f, N, H), `query/bias` (N, H), `key/...` and `value/...` alike,
/// `attention_output/kernel` (N, value_dim, output_shape), `attention_output/bias` (output_shape).
///
/// Memory is linear in the steps: scores are computed in blocks, and again in backward. Kept for
/// backward are q, k, v, o and one number for each head and step.
/// \code
///   Let<"y", From<"target", "source">, MultiHeadAttention<8, 64>>
///   struct Block : ls::Residual<ls::Sequential<ls::LayerNormalization<>,
///                                              ls::MultiHeadAttention<12, 64, ls::causal>>> {};
/// \endcode
template <int Heads, int KeyDim, auto... Options>
struct MultiHeadAttention : detail::AttentionOperands<Options...> {
  static constexpr std::string_view name = "multi_head_attention";

  template <std::same_as<Shape>... More>
  static constexpr MultiHeadAttentionOp op(Shape in, More... more) {
    const int values = detail::option<ValueDim, Options...>(ValueDim{}).value,
              outputs = detail::option<OutputShape, Options...>(OutputShape{}).value;
    return {in,
            Heads,
            KeyDim,
            values > 0 ? values : KeyDim,
            outputs > 0 ? outputs : in[1],
            detail::has_bias<Options...>(),
            detail::attention_rules<Options...>(),
            MultiHeadAttention::sources(more...)};
  }
  template <class... Shapes>
  static constexpr std::array<Parameter, 8> parameters(Shapes... operands) {
    const auto o = op(operands...);
    return detail::attention_parameters<Options...>(o.products(), o.attention());
  }

  static_assert(sizeof(detail::CheckMultiHeadAttention<
                       Heads, KeyDim, detail::option<ValueDim, Options...>(ValueDim{}).value,
                       detail::option<OutputShape, Options...>(OutputShape{}).value,
                       std::remove_cvref_t<decltype(Options)>...>) > 0 &&
                sizeof(detail::CheckAttentionRules<detail::attention_rules<Options...>(), KeyDim>) >
                    0);
};

static_assert(Layer<MultiHeadAttention<2, 8>> &&
              MultiHeadAttention<2, 8, causal>::op(shape(5, 16)).weights() == 4 * 16 * (16 + 1));

}  // namespace lockstep
