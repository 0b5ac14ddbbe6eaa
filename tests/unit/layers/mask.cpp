#include "lockstep/layers/mask.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "golden/golden_file.hpp"
#include "lockstep/layers/layers.hpp"
#include "lockstep/model/bidirectional.hpp"
#include "lockstep/model/shared.hpp"
#include "lockstep/model/statement_graph.hpp"
#include "unit/model/toy_device.hpp"

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

/// Compares outputs and gradients of the weights with Keras'.
template <class Net>
void meets_masked_net(const std::string& name, int parameters,
                      const std::string& recorded = "recurrent") {
  const golden::GoldenFile file(recorded);
  const auto all = [&](const std::string& part) {
    std::vector<double> flat;
    for (int i = 0; i < parameters; ++i)
      for (const double v : file.values(name + part + std::to_string(i))) flat.push_back(v);
    return flat;
  };
  toy::Machine<Net, ls::Reference<double>> machine(file.count(name + "/x"));
  machine.x = file.values(name + "/x");
  machine.c = file.values(name + "/c");
  machine.engine.weights().upload(all("/param/").data());
  CHECK(testing::relative_error(machine.forward(), file.values(name + "/y")) < 1e-10);
  CHECK(testing::relative_error(machine.gradients(), all("/d/")) < 1e-10);
}

/// The number of operands of the last layer.
template <class Net>
constexpr std::size_t last_operands() {
  return Net::graph.node[static_cast<std::size_t>(Net::graph.nodes - 1)].operands();
}

}  // namespace

TEST_CASE("masks reach the layers that Keras gives them to") {
  meets_masked_net<MaskedSeries>("masking", 3);
  meets_masked_net<MaskedWords>("words", 12);
  meets_masked_net<MeanOfWords>("mean_of_words", 3);
  STATIC_CHECK(last_operands<MaskedWords>() == 2);
  STATIC_CHECK(last_operands<MaskedGroups>() == 2);
  STATIC_CHECK(last_operands<Unmasked>() == 1);  // a convolution drops the mask
}

TEST_CASE("attention reads the masks of its operands and passes on the query's, as in Keras") {
  meets_masked_net<Attention>("attention", 9, "attention_masks");
  meets_masked_net<CausalAttention>("attention_causal", 9, "attention_masks");
  meets_masked_net<GroupedAttention>("grouped_attention", 5, "attention_masks");
  meets_masked_net<MeanOfAttention>("mean_of_attention", 11, "attention_masks");
  meets_masked_net<CrossAttention>("cross_attention", 11, "attention_masks");
}

TEST_CASE("a mask of pairs joins the masks of padded steps and the causal one, as in Keras") {
  meets_masked_net<Explicit>("explicit", 9, "attention_masks");
  meets_masked_net<ExplicitGrouped>("explicit_grouped", 11, "attention_masks");
  meets_masked_net<ExplicitThree>("explicit_three", 10, "attention_masks");
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
