/// \file
/// Continues a text, token by token.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/error.hpp>
#include <lockstep/predictor.hpp>
#include <lockstep/text_generator.hpp>

#include "support/job.hpp"

namespace support {

/// The tokens of a prompt: its bytes. For a vocabulary of more than bytes a prompt of numbers, "464 3290", is these
/// tokens. An empty prompt is the end of a line. \throws lockstep::UsageError for a number beyond the vocabulary
std::vector<int> encode(const std::string& prompt, std::size_t vocabulary);

/// The inverse: bytes as they are, other tokens as <number>; or all numbers, if the prompt was of numbers.
std::string decode(std::span<const int> tokens, const std::string& prompt, std::size_t vocabulary);

/// Those of --temperature, --top-k and --seed.
lockstep::SamplerOptions sampler_options(const Options& o);

/// Continues --prompt by --generate tokens. They follow at most --context tokens; beyond these the last half
/// is kept. \throws lockstep::Error if the weights give no numbers
template <class Net, class D>
void generate(const lockstep::TextGenerator<Net, D>& generator, Job& job) {
  const TextOptions& o = job.options().text;
  const std::size_t context =
      o.context > 0 ? static_cast<std::size_t>(o.context) : generator.context;
  std::vector<int> tokens = encode(o.prompt, generator.vocabulary);
  try {
    lockstep::Sampler sample(sampler_options(job.options()));
    lockstep::TokenSequence<D> text = generator.sequence();
    text.append(std::span(tokens).last(std::min(context, tokens.size())));
    tokens.push_back(sample(text.logits()));
    for (std::size_t i = 1; i < o.generate; ++i) {
      if (text.size() == context) text.keep_last(context / 2);
      tokens.push_back(sample(text.append(tokens.back())));
    }
  } catch (const lockstep::UsageError& e) {  // of a model that has trained
    throw lockstep::Error(e.what());
  }
  job.show_generated(decode(tokens, o.prompt, generator.vocabulary));
}

/// By the threads of --threads.
template <class D>
lockstep::TextGeneratorOptions<D> generator_options(const Options& o) {
  lockstep::TextGeneratorOptions<D> options;
  if constexpr (requires { options.on.threads; }) options.on.threads = o.threads;
  return options;
}

/// Continues --prompt with the weights of --init.
template <class Net, class D>
void generate_from_file(Job& job) {
  const Options& o = job.options();
  Job::check_float32(*o.init);
  generate(lockstep::TextGenerator<Net, D>(*o.init, generator_options<D>(o)), job);
}

}  // namespace support
