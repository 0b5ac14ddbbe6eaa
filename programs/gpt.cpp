// A causal language model: the programs gpt, gpt_mirrored and gpt_multi_worker. They differ in
// support::Strategy, which the build selects, as it does the size, the style and the optimizer of a
// unit. The text, the samples, the command line and the report are in support/.
#include <type_traits>

#include <lockstep/function.hpp>
#include <lockstep/lockstep.hpp>

#include "support/build.hpp"
#include "support/gpt.hpp"

namespace ls = lockstep;

namespace {

struct Size {
  int layers, width, heads, context, vocabulary;
};
constexpr Size size = support::unit_size == "124m"  ? Size{12, 768, 12, 1024, 50'257}
                      : support::unit_size == "10m" ? Size{6, 384, 6, 256, 256}
                                                    : Size{2, 64, 4, 64, 256};
constexpr ls::RandomNormal normal{.standard_deviation = 0.02};

/// GPT-2's approximation of GELU.
constexpr auto gelu = [](auto x) {
  return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
};
struct GELU : ls::Function<gelu> {
  static constexpr std::string_view name = "gelu";
};

template <Size S>
struct GPT2 {
  using Norm = ls::LayerNormalization<ls::epsilon(1e-5f)>;
  using Positions = ls::PositionEmbedding<S.context, normal>;
  using Attention = ls::MultiHeadAttention<S.heads, S.width / S.heads, ls::causal, normal>;
  using FeedForward =
      ls::Sequential<ls::Dense<4 * S.width, normal>, GELU, ls::Dense<S.width, normal>>;
};
template <Size S>
struct Llama {
  using Norm = ls::RMSNormalization<ls::epsilon(1e-5f)>;
  using Positions = ls::Identity;
  using Attention = ls::MultiHeadAttention<S.heads, S.width / S.heads, ls::causal, ls::rotary(),
                                           ls::no_bias, normal>;
  using FeedForward =
      ls::Sequential<ls::SwiGLU<(8 * S.width / 3 + 31) / 32 * 32, ls::no_bias, normal>,
                     ls::Dense<S.width, ls::no_bias, normal>>;
};
using Style =
    std::conditional_t<support::unit_style == support::Style::llama, Llama<size>, GPT2<size>>;

struct Block : ls::Sequential<ls::Residual<ls::Sequential<Style::Norm, Style::Attention>>,
                              ls::Residual<ls::Sequential<Style::Norm, Style::FeedForward>>> {};
using Words = ls::TiedDense<"tokens">;
using Head = std::conditional_t<size.vocabulary == 256, Words, ls::InBlocks<Words>>;
struct Net
    : ls::Sequential<ls::Input<support::unit_context>,
                     ls::Shared<"tokens", ls::Embedding<size.vocabulary, size.width, normal>>,
                     Style::Positions, ls::Repeat<size.layers, Block>, Style::Norm, Head> {};
static_assert(support::unit_style != support::Style::gpt2 || support::unit_size != "124m" ||
              Net::parameter_count == 124'439'808);

void train(support::Job& job) {
  const support::Options& options = job.options();
  if (options.text.generates_only) return support::generate_from_file<Net, support::Device>(job);
  const auto corpus = support::read_corpus<support::unit_context>(options, size.vocabulary);
  ls::Model model{
      Net{},
      ls::Seed{options.seed},
      support::strategy<support::Strategy>(options),
      ls::SparseCategoricalCrossentropy{.from_logits = true, .ignore_class = corpus.ignored()},
      support::optimizer<support::unit_optimizer, support::unit_style>(options, corpus.steps),
      ls::Accuracy{.ignore_class = corpus.ignored()}};
  support::train_on_corpus(model, job, corpus);
}

const support::Unit<support::Strategy> unit(support::unit_options, train);

}  // namespace
