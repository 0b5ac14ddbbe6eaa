#include "lockstep/layers/mask.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "golden/networks.hpp"
#include "lockstep/layers/layers.hpp"
#include "lockstep/model/bidirectional.hpp"
#include "lockstep/model/shared.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace {

namespace ls = lockstep;
using ls::return_sequences;

struct MaskedSeries : ls::Sequential<ls::Input<5, 2>, ls::Masking<0.5>, ls::SimpleRNN<3>> {};
struct MaskedWords
    : ls::Sequential<ls::Input<5>, ls::Embedding<7, 3, ls::mask_zero>, ls::Dense<4, ls::tanh>,
                     ls::Dropout<0>, ls::Bidirectional<ls::LSTM<3, return_sequences>>, ls::GRU<2>> {
};
struct MeanOfWords : ls::Sequential<ls::Input<5>, ls::Embedding<7, 3, ls::mask_zero>,
                                    ls::GlobalAveragePooling1D, ls::Dense<2>> {};
struct Unmasked : ls::Sequential<ls::Input<5>, ls::Embedding<7, 3, ls::mask_zero>, ls::Conv1D<4, 1>,
                                 ls::GRU<2>> {};
struct MaskedGroups : ls::Sequential<ls::Input<5, 2>, ls::Masking<>, ls::PositionEmbedding<5>,
                                     ls::GroupNormalization<1>, ls::GRU<2>> {};
struct MergedMasks
    : ls::Sequential<ls::Input<5, 2>,
                     ls::Parallel<ls::Add, ls::Masking<>, ls::Sequential<ls::Tanh, ls::Masking<1>>>,
                     ls::GRU<2>> {};
struct Mean : ls::GlobalAveragePooling1D {};
struct JoinedMasks : ls::Graph<ls::In<"x", 2, 2>, ls::Let<"masked", ls::From<"x">, ls::Masking<>>,
                               ls::Let<"all", ls::From<"masked", "x">, ls::ConcatenateOn<1>, Mean>,
                               ls::Let<"its", ls::From<"masked">, ls::Shared<"mean", Mean>>,
                               ls::Let<"plain", ls::From<"x">, ls::Shared<"mean", Mean>>,
                               ls::Out<"y", ls::From<"all", "its", "plain">, ls::Concatenate>> {};
struct Attention : ls::Sequential<ls::Input<5>, ls::Embedding<7, 3, ls::mask_zero>,
                                  ls::MultiHeadAttention<2, 4>> {};
struct CausalAttention
    : ls::Sequential<ls::Input<5>, ls::Embedding<7, 3, ls::mask_zero>,
                     ls::MultiHeadAttention<2, 4, ls::value_dim(2), ls::causal>> {};
struct GroupedAttention
    : ls::Sequential<ls::Input<5>, ls::Embedding<7, 3, ls::mask_zero>,
                     ls::GroupedQueryAttention<4, 2, 4, ls::causal, ls::no_bias>> {};
struct MeanOfAttention
    : ls::Sequential<ls::Input<5>, ls::Embedding<7, 3, ls::mask_zero>, ls::MultiHeadAttention<2, 4>,
                     ls::GlobalAveragePooling1D, ls::Dense<2>> {};
struct CrossAttention
    : ls::Graph<ls::In<"query", ls::Integers<4>>, ls::In<"value", ls::Integers<5>>,
                ls::In<"key", ls::Integers<5>>,
                ls::Let<"q", ls::From<"query">, ls::Embedding<7, 3, ls::mask_zero>>,
                ls::Let<"v", ls::From<"value">, ls::Embedding<7, 2, ls::mask_zero>>,
                ls::Let<"k", ls::From<"key">, ls::Embedding<7, 3, ls::mask_zero>>,
                ls::Out<"mean", ls::From<"q", "v", "k">, ls::MultiHeadAttention<2, 4>,
                        ls::GlobalAveragePooling1D>> {};

struct Explicit : ls::Graph<ls::In<"words", ls::Integers<5>>, ls::In<"pairs", 5, 5>,
                            ls::Let<"x", ls::From<"words">, ls::Embedding<7, 3, ls::mask_zero>>,
                            ls::Out<"y", ls::From<"x", "pairs">,
                                    ls::MultiHeadAttention<2, 4, ls::causal, ls::attention_mask>>> {
};
struct ExplicitGrouped
    : ls::Graph<ls::In<"query", 4, 2>, ls::In<"words", ls::Integers<5>>, ls::In<"pairs", 4, 5>,
                ls::Let<"q", ls::From<"query">, ls::Dense<3>>,
                ls::Let<"v", ls::From<"words">, ls::Embedding<7, 3, ls::mask_zero>>,
                ls::Out<"y", ls::From<"q", "v", "pairs">,
                        ls::GroupedQueryAttention<4, 2, 4, ls::attention_mask>>> {};
struct ExplicitThree
    : ls::Graph<ls::In<"query", 4, 2>, ls::In<"value", 5, 2>, ls::In<"key", 5, 3>,
                ls::In<"pairs", 4, 5>, ls::Let<"q", ls::From<"query">, ls::Dense<3>>,
                ls::Let<"v", ls::From<"value">, ls::Dense<2>>,
                ls::Let<"k", ls::From<"key">, ls::Dense<4>>,
                ls::Out<"y", ls::From<"q", "v", "k", "pairs">,
                        ls::MultiHeadAttention<2, 3, ls::value_dim(2), ls::no_bias,
                                               ls::attention_mask>>> {};

struct EncoderDecoder
    : ls::Graph<ls::In<"words", ls::Integers<5>>, ls::In<"target", 3, 2>,
                ls::Let<"e", ls::From<"words">, ls::Embedding<7, 3, ls::mask_zero>,
                        ls::LSTM<4, ls::return_state>>,
                ls::Let<"d", ls::From<"target", "e/h", "e/c">,
                        ls::LSTM<4, return_sequences, ls::initial_state>>,
                ls::Out<"y", ls::From<"d">, ls::Dense<2>>> {};
struct FirstResult
    : ls::Graph<ls::In<"words", ls::Integers<5>>,
                ls::Let<"r", ls::From<"words">, ls::Embedding<7, 3, ls::mask_zero>,
                        ls::GRU<3, return_sequences, ls::return_state>>,
                ls::Out<"y", ls::From<"r">, ls::GRU<2>>, ls::Out<"h", ls::From<"r/h">>> {};

/// The number of operands of the last layer.
template <class Net>
constexpr std::size_t last_operands() {
  return Net::graph.node[static_cast<std::size_t>(Net::graph.nodes - 1)].operands();
}

}  // namespace

TEST_CASE("masks reach the layers that Keras gives them to") {
  golden::meets_network<MaskedSeries>("recurrent", "masking", 3);
  golden::meets_network<MaskedWords>("recurrent", "words", 12);
  golden::meets_network<MeanOfWords>("recurrent", "mean_of_words", 3);
  STATIC_CHECK(last_operands<MaskedWords>() == 2);
  STATIC_CHECK(last_operands<MaskedGroups>() == 2);
  STATIC_CHECK(last_operands<Unmasked>() == 1);  // a convolution drops the mask
}

TEST_CASE("attention reads the masks of its operands and passes on the query's, as in Keras") {
  golden::meets_network<Attention>("attention_masks", "attention", 9);
  golden::meets_network<CausalAttention>("attention_masks", "attention_causal", 9);
  golden::meets_network<GroupedAttention>("attention_masks", "grouped_attention", 5);
  golden::meets_network<MeanOfAttention>("attention_masks", "mean_of_attention", 11);
  golden::meets_network<CrossAttention>("attention_masks", "cross_attention", 11);
}

TEST_CASE("the states of one layer start another, and its first result has the mask, as in Keras") {
  golden::meets_network<EncoderDecoder>("recurrent_states", "encoder_decoder", 9);
  golden::meets_network<FirstResult>("recurrent_states", "passes_mask", 7);
}

TEST_CASE("a mask of pairs joins the masks of padded steps and the causal one, as in Keras") {
  golden::meets_network<Explicit>("attention_masks", "explicit", 9);
  golden::meets_network<ExplicitGrouped>("attention_masks", "explicit_grouped", 11);
  golden::meets_network<ExplicitThree>("attention_masks", "explicit_three", 10);
  STATIC_CHECK(last_operands<Explicit>() == 3);  // words, pairs, the mask of the words
}

TEST_CASE("a step of merged values is padding if it is in both") {
  STATIC_CHECK(last_operands<MergedMasks>() == 2);
  using Double = ls::Reference<double>;
  const auto merged = testing::run_layer<Double>(ls::MaskOp{ls::shape(3), 0, true}, 1, {0, 1, 0},
                                                 {}, {}, {.training = false, .x2 = {0, 0, 1}});
  CHECK(merged.y == std::vector<double>{0, 1, 1});
  const auto masked = testing::run_layer<Double>(ls::Masking<0.5>::op(ls::shape(2, 2)), 1,
                                                 {0.5, 0.5, 0.5, 1}, {}, {1, 2, 3, 4});
  CHECK(masked.y == std::vector<double>{0, 0, 0.5, 1});
  CHECK(masked.dx == std::vector<double>{0, 0, 3, 4});
}

TEST_CASE("a concatenation of steps has the masks of all, and each call of a layer its own") {
  toy::Machine<JoinedMasks, ls::Reference<double>> machine(1);
  machine.x = {0, 0, 1, 2};
  const std::vector<double> expected{2.0 / 3, 4.0 / 3, 1, 2, 0.5, 1};
  CHECK(testing::relative_error(machine.forward(), expected) < 1e-15);
}
