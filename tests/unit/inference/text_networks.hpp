/// \file
/// Networks for tests of text generation, and the comparison of each step with a whole window.
#pragma once

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/predictor.hpp>
#include <lockstep/text_generator.hpp>

#include "lockstep/model/in_blocks.hpp"
#include "lockstep/training/parameters.hpp"
#include "lockstep/training/weights_file.hpp"
#include "support/temporary_folder.hpp"

namespace testing::text {

namespace ls = lockstep;

/// GPT-2 in small: learned positions, and the table of the tokens as the last matrix.
struct Gpt
    : ls::Sequential<
          ls::Input<9>, ls::Shared<"tokens", ls::Embedding<13, 6>>, ls::PositionEmbedding<9>,
          ls::Dropout<0.1>,
          ls::Repeat<2, ls::Sequential<
                            ls::Residual<ls::Sequential<ls::LayerNormalization<>,
                                                        ls::MultiHeadAttention<2, 3, ls::causal>>>,
                            ls::Residual<ls::Sequential<ls::LayerNormalization<>,
                                                        ls::Dense<24, ls::gelu>, ls::Dense<6>>>>>,
          ls::LayerNormalization<>, ls::TiedDense<"tokens">> {};
/// Llama in small: shared heads of keys, rotation, a gate.
template <int Steps, int HeadDim = 6, ls::Rotary Turn = ls::rotary()>
struct Llama
    : ls::Sequential<
          ls::Input<Steps>, ls::Embedding<17, 10>,
          ls::Repeat<
              2, ls::Sequential<
                     ls::Residual<ls::Sequential<
                         ls::RMSNormalization<>,
                         ls::GroupedQueryAttention<4, 2, HeadDim, ls::causal, Turn, ls::no_bias>>>,
                     ls::Residual<ls::Sequential<ls::RMSNormalization<>, ls::SwiGLU<12>,
                                                 ls::Dense<10, ls::no_bias>>>>>,
          ls::RMSNormalization<>, ls::Dense<17, ls::no_bias>> {};
/// Values of another size than keys, and a window; the second attention reads three steps.
struct Windowed
    : ls::Sequential<ls::Input<70>, ls::Embedding<5, 7>, ls::PositionEmbedding<80>,
                     ls::MultiHeadAttention<3, 5, ls::causal, ls::value_dim(2), ls::output_shape(8),
                                            ls::sliding_window(67)>,
                     ls::GroupedQueryAttention<3, 1, 17, ls::causal, ls::sliding_window(3)>,
                     ls::BatchNormalization<>, ls::Dense<5>> {};
/// One step of context.
struct Short
    : ls::Sequential<ls::Input<1>, ls::Embedding<3, 4>, ls::PositionEmbedding<1>,
                     ls::MultiHeadAttention<1, 4, ls::causal, ls::rotary_pairs()>, ls::Dense<3>> {};
/// A Graph, blocks that are frozen or recomputed, merging layers, layers of each step.
struct Graphs
    : ls::Graph<ls::In<"tokens", ls::Integers<12>>,
                ls::Let<"x", ls::From<"tokens">, ls::Frozen<ls::Embedding<7, 8>>>,
                ls::Let<"a", ls::From<"x">,
                        ls::Recompute<ls::Sequential<ls::MultiHeadAttention<2, 4, ls::causal>,
                                                     ls::Dense<8, ls::tanh>>>>,
                ls::Let<"b", ls::From<"x">, ls::TimeDistributed<ls::Dense<8>>,
                        ls::GaussianNoise<0.1>, ls::SiLU>,
                ls::Let<"ab", ls::From<"a", "b">, ls::Concatenate>,
                ls::Let<"c", ls::From<"a", "b">, ls::Subtract, ls::Softmax>,
                ls::Let<"d", ls::From<"a", "b", "c">, ls::Maximum>,
                ls::Let<"e", ls::From<"ab">, ls::Dense<8>, ls::LeakyReLU<>>,
                ls::Out<"logits", ls::From<"d", "e">, ls::Average, ls::Dense<7>, ls::LogSoftmax>> {
};

/// One attention with two calls, each of which has a cache of its own, and a last layer in blocks.
struct SharedAttention
    : ls::Sequential<
          ls::Input<9>, ls::Shared<"tokens", ls::Embedding<13, 6>>,
          ls::Residual<
              ls::Shared<"attends", ls::MultiHeadAttention<2, 4, ls::causal, ls::rotary()>>>,
          ls::Dense<6, ls::tanh>,
          ls::Residual<
              ls::Shared<"attends", ls::MultiHeadAttention<2, 4, ls::causal, ls::rotary()>>>,
          ls::InBlocks<ls::TiedDense<"tokens">, 3>> {};

/// A weights file. `fill(name, value)` writes each element of each parameter, in their order.
template <class Net, class T>
class WeightsFile {
 public:
  template <class Fill>
  explicit WeightsFile(const Fill& fill) {
    std::vector<T> weights(Net::graph.weights), state(Net::graph.state);
    const auto parameters = ls::detail::parameters_of<Net>();
    for (const ls::ParameterInfo& p : parameters)
      for (std::size_t i = 0; i < p.size(); ++i)
        fill(p.name, (p.trainable ? weights : state)[p.offset + i]);
    ls::detail::write_weights(path, parameters, ls::detail::bytes_of(weights, state));
  }

 private:
  TemporaryFolder folder_;

 public:
  std::string path = folder_ / "w.safetensors";
};

/// A file of random parameters, the statistics of BatchNormalization too.
template <class Net, class T>
WeightsFile<Net, T> random_weights() {
  ls::Philox g(1);
  return WeightsFile<Net, T>([&](const std::string& name, T& value) {
    const bool variance = name.find("variance") != std::string::npos;
    value = static_cast<T>(variance ? 0.5 + g.uniform() : 0.6 * g.normal());
  });
}
template <class Net, class D>
ls::TextGenerator<Net, D> random_generator(const ls::TextGeneratorOptions<D>& options = {}) {
  return ls::TextGenerator<Net, D>(random_weights<Net, typename D::real>().path, options);
}

inline std::vector<int> random_tokens(std::size_t count, std::size_t vocabulary,
                                      std::uint64_t seed = 1) {
  ls::Philox g(seed);
  std::vector<int> tokens(count);
  for (int& t : tokens) t = static_cast<int>(g.below(static_cast<std::uint32_t>(vocabulary)));
  return tokens;
}

/// Compares the logits of each step with those of Predictor for the whole window, for prompts of
/// several lengths, in blocks of up to `block` steps. `tolerance`: of the largest logit.
template <class Net, class D>
void check_steps(double tolerance, std::size_t block = 32, D device = {}) {
  using T = typename D::real;
  const auto weights = random_weights<Net, T>();
  const ls::Predictor<Net, D> predictor(weights.path, {.on = device});
  const ls::TextGenerator<Net, D> generator(weights.path, {.on = device, .prompt_steps = block});
  constexpr std::size_t context = Net::input_shape[0], vocabulary = Net::output_shape[1];
  static_assert(decltype(generator)::context == context &&
                decltype(generator)::vocabulary == vocabulary);
  const std::vector<int> tokens = random_tokens(context, vocabulary);
  const auto whole = predictor.predict(std::vector<T>(tokens.begin(), tokens.end()));
  const std::span<const T> expected = whole.elements();
  double scale = 0;
  for (const T y : expected) scale = std::max(scale, std::abs(static_cast<double>(y)));
  REQUIRE(scale > 0.5);
  std::size_t compared = 0;
  for (const std::size_t prompt :
       {std::size_t{1}, std::size_t{2}, context / 2, context - 1, context}) {
    if (prompt == 0 || prompt > context) continue;
    CAPTURE(prompt, block);
    auto text = generator.sequence();
    std::span<const T> logits = text.append(std::span(tokens).first(prompt));
    for (std::size_t t = prompt;; ++t) {
      CAPTURE(t);
      REQUIRE(logits.size() == vocabulary);
      double error = 0;
      for (std::size_t v = 0; v < vocabulary; ++v)
        error = std::max(error, std::abs(static_cast<double>(logits[v]) -
                                         static_cast<double>(expected[(t - 1) * vocabulary + v])));
      CHECK(error <= tolerance * scale);
      ++compared;
      if (t == context) break;
      logits = text.append(tokens[t]);
    }
    CHECK(text.size() == context);
    CHECK(std::equal(tokens.begin(), tokens.end(), text.tokens().begin()));
  }
  CHECK(compared >= context);
}

}  // namespace testing::text
