/// \file
/// The shared part of the gpt programs: what a unit is built for, the windows of a text, and the optimizer.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include <lockstep/lockstep.hpp>

#include "support/build.hpp"
#include "support/sampling.hpp"
#include "support/text.hpp"
#include "support/train_on_parts.hpp"
#include "support/units.hpp"

// The build compiles gpt.cpp once for each of these, strategy, and precision.
#ifndef LOCKSTEP_SIZE
#define LOCKSTEP_SIZE tiny
#define LOCKSTEP_CONTEXT 64
#define LOCKSTEP_STYLE gpt2
#define LOCKSTEP_OPTIMIZER adamw
#endif

namespace support {

// Those of the unit that includes this file. A program has several units, so nothing with linkage may depend on
// them: what does is a template of them.
constexpr const char* unit_options =
    "--size " LOCKSTEP_TEXT(LOCKSTEP_SIZE) " --context " LOCKSTEP_TEXT(LOCKSTEP_CONTEXT)  //
    " --style " LOCKSTEP_TEXT(LOCKSTEP_STYLE) " --optimizer " LOCKSTEP_TEXT(
        LOCKSTEP_OPTIMIZER) " --precision " LOCKSTEP_TEXT(LOCKSTEP_PRECISION)
        LOCKSTEP_POLICY_OPTION;

/// The values of --style and --optimizer.
enum class Style { gpt2, llama };
enum class Optimizer { adamw, muon };

constexpr std::string_view unit_size = LOCKSTEP_TEXT(LOCKSTEP_SIZE);
constexpr int unit_context = LOCKSTEP_CONTEXT;
constexpr Style unit_style = Style::LOCKSTEP_STYLE;
constexpr Optimizer unit_optimizer = Optimizer::LOCKSTEP_OPTIMIZER;

/// The text of a run, in windows of `window` tokens. A window shorter than the context of the network is padded, and
/// the labels of its padding are ignored; since attention is causal, the padding changes nothing else.
template <int context>
struct Corpus {
  static constexpr std::int32_t padding = -1;

  Text text;
  int window = context;
  std::uint64_t steps = 1;  ///< of the whole run

  std::optional<int> ignored() const {
    return window < context ? std::optional<int>(padding) : std::nullopt;
  }
  /// Examples among the tokens [begin, end).
  auto examples(std::size_t begin, std::size_t end) const {
    const lockstep::Shape row = lockstep::shape(context);
    return lockstep::generator<std::int32_t>(
        Text::windows(begin, end, window), row, row,
        [text = text, begin, size = static_cast<std::size_t>(window)](std::uint64_t number,
                                                                      auto& example) {
          const std::size_t first = begin + static_cast<std::size_t>(number) * size;
          for (std::size_t i = 0; i < std::size_t{context}; ++i) {
            example.x[i] = i < size ? static_cast<float>(text[first + i]) : 0;
            example.y[i] = i < size ? static_cast<std::int32_t>(text[first + i + 1]) : padding;
          }
        });
  }
};

/// Reads --data, or generates a text. \throws lockstep::FileError, lockstep::Error
template <int context>
Corpus<context> read_corpus(const Options& o, int vocabulary) {
  if (o.text.generate > 0) encode(o.text.prompt, vocabulary);  // refused before training
  Corpus<context> corpus{o.data ? Text::read(*o.data, vocabulary) : Text::generated(o.seed)};
  if (o.text.context > 0) corpus.window = o.text.context;
  corpus.text.check_length(corpus.window, o.validate, o.data.value_or("the generated text"));
  const std::uint64_t all = Text::windows(0, corpus.text.split(), corpus.window),
                      some = std::min(o.take.value_or(all), all - std::min(all, o.skip));
  const std::uint64_t each = o.steps_per_epoch.value_or((some + o.batch - 1) / o.batch);
  corpus.steps = std::max<std::uint64_t>(1, each * static_cast<std::uint64_t>(o.epochs));
  return corpus;
}

/// The optimizer, whose rate rises to that of the options in a tenth of the steps, and falls to a tenth of it.
template <Optimizer kind, Style style>
auto optimizer(const Options& o, std::uint64_t steps) {
  const std::uint64_t warm_up = std::min<std::uint64_t>(steps / 10, 2'000);
  const lockstep::CosineDecay rate{.initial_learning_rate = o.learning_rate / 10,
                                   .decay_steps = steps - warm_up,
                                   .alpha = 0.1,
                                   .warmup_target = o.learning_rate,
                                   .warmup_steps = warm_up};
  const lockstep::UpdateOptions with{
      .global_clipnorm = 1,
      .exclude_from_weight_decay = style == Style::llama
                                       ? lockstep::NameList{"scale"}
                                       : lockstep::NameList{"bias", "gamma", "beta"},
      .gradient_accumulation_steps = o.text.accumulate};
  if constexpr (kind == Optimizer::muon)  // steps as large as those of AdamW
    return lockstep::Muon{.learning_rate = rate,
                          .weight_decay = 0.1,
                          .variant = lockstep::MuonVariant::jordan,
                          .scale = lockstep::MuonScale::rms,
                          .adam_beta_2 = 0.95,
                          .adam_weight_decay = 0.1,
                          .with = with};
  else
    return lockstep::AdamW{
        .learning_rate = rate, .weight_decay = 0.1, .beta_2 = 0.95, .with = with};
}

/// Trains by the options, and then continues --prompt.
template <class Model, int context>
void train_on_corpus(Model& model, Job& job, const Corpus<context>& corpus) {
  const Options& o = job.options();
  job.describe(model);
  job.count_tokens(static_cast<std::size_t>(corpus.window));
  if (!o.data)
    job.note_drawn(
        model.is_chief(),
        fmt::format("a generated text, which has {:.3f} nats per character", corpus.text.entropy()),
        "a file with a real one, or with tokens (.bin)");
  const Text& text = corpus.text;
  const std::size_t split = text.split();
  const struct {
    decltype(corpus.examples(0, 0)) train, test;
  } parts{corpus.examples(0, split), corpus.examples(split, text.size())};
  train_on_parts(model, job, parts, [](const auto&) {});
  if (o.text.generate > 0 && job.signal() == 0 && model.is_chief())
    generate(lockstep::TextGenerator{model, generator_options<typename Model::device>(o)}, job);
}

}  // namespace support
