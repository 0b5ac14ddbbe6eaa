/// \file
/// Ten steps of small language models on Reference<double>, compared with PyTorch.
#include "golden/training.hpp"
#include "lockstep/function.hpp"
#include "lockstep/reference.hpp"

namespace {

namespace ls = lockstep;
using Double = ls::Reference<double>;

constexpr auto gelu = [](auto x) {
  return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
};

struct GPT2 {
  using Norm = ls::LayerNormalization<ls::epsilon(1e-5f)>;
  using Positions = ls::PositionEmbedding<7>;
  using Attention = ls::MultiHeadAttention<2, 4, ls::causal>;
  using FeedForward = ls::Sequential<ls::Dense<32>, ls::Function<gelu>, ls::Dense<8>>;
  static ls::NameList vectors() { return {"bias", "gamma", "beta"}; }
};
struct Llama {
  using Norm = ls::RMSNormalization<ls::epsilon(1e-5f)>;
  using Positions = ls::Identity;
  using Attention = ls::MultiHeadAttention<2, 4, ls::causal, ls::rotary(), ls::no_bias>;
  using FeedForward = ls::Sequential<ls::SwiGLU<12, ls::no_bias>, ls::Dense<8, ls::no_bias>>;
  static ls::NameList vectors() { return {"scale"}; }
};
template <class Style>
struct Block
    : ls::Sequential<
          ls::Residual<ls::Sequential<typename Style::Norm, typename Style::Attention>>,
          ls::Residual<ls::Sequential<typename Style::Norm, typename Style::FeedForward>>> {};
template <class Style>
struct Net : ls::Sequential<ls::Input<6>, ls::Shared<"tokens", ls::Embedding<11, 8>>,
                            typename Style::Positions, ls::Repeat<2, Block<Style>>,
                            typename Style::Norm, ls::TiedDense<"tokens">> {};

/// The optimizer of make_gpt.py.
ls::AdamW optimizer(const ls::NameList& vectors) {
  return {.learning_rate = ls::CosineDecay{.initial_learning_rate = 0.002,
                                           .decay_steps = 7,
                                           .alpha = 0.1,
                                           .warmup_target = 0.02,
                                           .warmup_steps = 3},
          .weight_decay = 0.1,
          .beta_2 = 0.95,
          .epsilon = 1e-8,
          .with = {.global_clipnorm = 2.5, .exclude_from_weight_decay = vectors}};
}

template <class Style, class Strategy>
golden::Trained trained(const golden::GoldenFile& file, const std::string& style,
                        const Strategy& strategy) {
  std::vector<float> x;
  std::vector<std::int32_t> y;
  const std::vector<double> tokens = file.values("tokens");
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    x.push_back(static_cast<float>(tokens[i]));
    y.push_back(static_cast<std::int32_t>(tokens[i + 1]));
  }
  return golden::trained<Net<Style>>(
      file, style, strategy, ls::tensors(x, ls::shape(6), y, ls::shape(6)) | ls::batch(4),
      golden::crossentropy, optimizer(Style::vectors()), ls::Accuracy{});
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

/// Absolute, since the gradient of a key's bias is 0.
void is_as_torch(const golden::Trained& run, const golden::GoldenFile& file,
                 const std::string& style) {
  CHECK(distance(run.losses, file.values(style + "loss")) < 1e-10);
  CHECK(distance(run.accuracies, file.values(style + "accuracy")) < 1e-12);
  CHECK(run.losses.size() == 10);
  for (const auto& [name, final] : run.final) {
    CAPTURE(style, name);
    CHECK(distance(run.gradients.at(name), file.values(style + "grad/" + name)) < 1e-10);
    CHECK(distance(final, file.values(style + "final/" + name)) < 1e-9);
    if (name.find("key/bias") == std::string::npos)
      CHECK(distance(final, run.init.at(name)) > 1e-3);
  }
}

template <class Style>
void meets_torch(const std::string& style) {
  const golden::GoldenFile file("gpt");
  is_as_torch(trained<Style>(file, style, ls::OneDevice<Double>{}), file, style);
  const auto one = trained<Style>(file, style, ls::OneDevice<Double>{.virtual_shards = 4});
  const auto two =
      trained<Style>(file, style, ls::Mirrored<Double>{.replicas = 2, .virtual_shards = 4});
  is_as_torch(one, file, style);
  CHECK(one.final == two.final);
  CHECK(one.losses == two.losses);
}

}  // namespace

TEST_CASE("a small GPT-2 trains as in PyTorch, with the same bits on two replicas", "[golden]") {
  meets_torch<GPT2>("gpt2/");
}
TEST_CASE("a small Llama trains as in PyTorch, with the same bits on two replicas", "[golden]") {
  meets_torch<Llama>("llama/");
}
