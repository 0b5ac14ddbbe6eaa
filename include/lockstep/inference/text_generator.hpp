/// \file
/// `ls::TextGenerator`: a trained language model that continues sequences of tokens. Invariants:
/// weights are shared by all sequences; the logits are those of `Predictor` and `Model::predict` for
/// the whole sequence, up to rounding.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/inference/parameter_sources.hpp"
#include "lockstep/inference/predictor_core.hpp"
#include "lockstep/inference/text_generator_checks.hpp"
#include "lockstep/inference/token_sequence.hpp"
#include "lockstep/model/forward_engine.hpp"
#include "lockstep/training/checks/one_definition.hpp"
#include "lockstep/training/report/memory_use.hpp"

namespace lockstep {

namespace detail {
template <class Net, class D>
struct StepConstants {
  static constexpr ForwardPlan<D> value = [] {
    ForwardPlan<D> of_step = ForwardConstants<StepNetwork<Net>, D>::value;
    of_step.once_of_call = true;
    return of_step;
  }();
};
}  // namespace detail

/// Options of a TextGenerator on device D.
template <class D>
struct TextGeneratorOptions {
  /// Where a call computes. By default on the calling thread alone; more threads shorten the steps of
  /// a large network.
  D on = detail::on_one_thread<D>();
  std::size_t prompt_steps = 32;  ///< steps of a prompt computed at a time, at most
};

/// Instantiated for invalid arguments: emits one error; its members do nothing.
template <class Net, class D>
class TextGenerator {
 public:
  using T = typename detail::RealOfDevice<D>::type;
  struct Sequence {
    std::span<const T> append(const auto&) { return {}; }
    std::vector<int> generate(const auto&...) { return {}; }
  };
  explicit TextGenerator(const auto&...) {}
  Sequence sequence() const { return {}; }
  std::vector<int> generate(const auto&, const GenerateOptions& = {},
                            FunctionRef<void(int)> = {}) const {
    return {};
  }
  MemoryUse memory() const { return {}; }

  static_assert(sizeof(detail::GeneratorVerdict<detail::generator_fault_of<Net, D>(), Net, D>) > 0);
};

/// A trained network from tokens, Input<steps>, to the logits of each next token, (steps, vocabulary),
/// that generates text, one token at a time. Attention layers are causal; their keys and values are
/// cached, so a token costs one step of each layer and attention to the steps before, and not a whole
/// window. The other layers act on each step alone: Embedding, PositionEmbedding, Dense, TiedDense,
/// normalizations over the last axis, activations, merging layers, Dropout, TimeDistributed. Other
/// networks do not compile.
///
/// Thread-safe: any number of threads may call any member at the same time, except the move operations;
/// each sequence belongs to one thread.
///
/// Logits are those of Model::predict for the whole sequence, up to rounding: products of few rows add
/// their terms in another order. In bfloat16 keys are rounded after the rotation of ls::rotary.
/// \code
///   ls::TextGenerator<Gpt, ls::Cpu> generator("w.safetensors");
///   const auto tokens = generator.generate(
///       prompt, {.tokens = 200, .sampler = {.temperature = 0.8f, .top_k = 40, .seed = 1}},
///       [&](int token) { fmt::print("{}", vocabulary[token]); });
/// \endcode
template <class Net, class D>
  requires(detail::generator_fault_of<Net, D>() == detail::GeneratorFault::none)
class TextGenerator<Net, D> {
 public:
  using device = D;
  using T = typename D::real;
  static constexpr std::size_t context = static_cast<std::size_t>(Net::input_shape[0]),
                               vocabulary = static_cast<std::size_t>(Net::output_shape[1]);

  /// Reads a weights file of the network. \throws as Predictor.
  [[gnu::cold]] explicit TextGenerator(const std::string& path,
                                       const TextGeneratorOptions<D>& options = {})
      : TextGenerator(options, detail::from_file<Net>(path)) {}
  /// Copies the parameters of a model of the same network, on any device with this element type.
  template <class S, class L, class O, class... Ms>
    requires std::is_same_v<typename S::device::real, T>
  [[gnu::cold]] explicit TextGenerator(const Model<Net, S, L, O, Ms...>& model,
                                       const TextGeneratorOptions<D>& options = {})
      : TextGenerator(options, detail::from_model(model)) {}

  /// Movable while no other thread uses it; its sequences stay valid.
  TextGenerator(TextGenerator&&) noexcept = default;
  TextGenerator& operator=(TextGenerator&&) noexcept = default;

  /// An empty sequence with memory for the keys and values of a whole context.
  TokenSequence<D> sequence() const { return TokenSequence<D>(*core_, context); }

  /// Continues a prompt by a sequence of its own, and returns the tokens after the prompt.
  /// Calls each(token) for each. \throws as TokenSequence::append and generate.
  std::vector<int> generate(std::span<const int> prompt, const GenerateOptions& options = {},
                            FunctionRef<void(int)> each = {}) const {
    TokenSequence<D> text = sequence();
    text.append(prompt);
    return text.generate(options, each);
  }

  /// Bytes of weights and state, once, and of activations and workspace for all calls that have run at
  /// the same time; without the caches of sequences.
  MemoryUse memory() const { return core_->memory(); }

 private:
  template <class Fill>
  [[gnu::cold]] TextGenerator(const TextGeneratorOptions<D>& options, const Fill& fill)
      : core_((detail::check_one_definition<Net>(), check(options),
               std::make_unique<detail::PredictorCore<D>>(
                   options.on, detail::StepConstants<Net, D>::value, options.prompt_steps, fill))) {
  }
  static void check(const TextGeneratorOptions<D>& options) {
    if (options.prompt_steps == 0)
      throw UsageError("text generator: prompt_steps is 0; it must be at least 1");
  }

  std::unique_ptr<detail::PredictorCore<D>> core_;
};

template <class Net, class S, class L, class O, class... Ms>
TextGenerator(const Model<Net, S, L, O, Ms...>&) -> TextGenerator<Net, typename S::device>;
template <class Net, class S, class L, class O, class... Ms>
TextGenerator(const Model<Net, S, L, O, Ms...>&, const TextGeneratorOptions<typename S::device>&)
    -> TextGenerator<Net, typename S::device>;

}  // namespace lockstep
