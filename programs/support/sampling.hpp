/// \file
/// Continues a text, token by token.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/rng.hpp>
#include <lockstep/predictor.hpp>

#include "support/job.hpp"

namespace support {

/// The tokens of a prompt: its bytes. For a vocabulary of more than bytes a prompt of numbers, "464 3290", is these
/// tokens. An empty prompt is the end of a line. \throws lockstep::UsageError for a number beyond the vocabulary
std::vector<int> encode(const std::string& prompt, int vocabulary);

/// The inverse: bytes as they are, other tokens as <number>; or all numbers, if the prompt was of numbers.
std::string decode(std::span<const int> tokens, const std::string& prompt, int vocabulary);

/// Draws a token of probability softmax(logits / temperature), among the `top_k` largest logits if that is not 0. Without a
/// temperature it is the largest one, the first of equal ones.
int sample(std::span<const float> logits, double temperature, std::size_t top_k,
           lockstep::Philox& random);

/// One example at a time, by the threads of --threads.
template <class D>
lockstep::PredictorOptions<D> predictor_options(const Options& o) {
  lockstep::PredictorOptions<D> options{.batch_size = 1};
  if constexpr (requires { options.on.threads; }) options.on.threads = o.threads;
  return options;
}

/// The logits that follow the last of `tokens`. Computes a whole window; what is after the tokens does not count, since
/// attention is causal. `x` and `y` are memory of one example.
template <class Net, class D>
std::span<const float> next_logits(const lockstep::Predictor<Net, D>& predictor,
                                   std::span<const int> tokens, std::span<float> x,
                                   std::span<float> y) {
  std::fill(std::copy(tokens.begin(), tokens.end(), x.begin()), x.end(), 0.0f);
  predictor(x, y);
  const auto vocabulary = static_cast<std::size_t>(Net::output_shape.channels());
  return y.subspan((tokens.size() - 1) * vocabulary, vocabulary);
}

/// Continues --prompt by --generate tokens, each of which depends on at most --context before it.
template <class Net, class D>
void generate(const lockstep::Predictor<Net, D>& predictor, Job& job) {
  const TextOptions& o = job.options().text;
  const std::size_t context =
      o.context > 0 ? static_cast<std::size_t>(o.context) : Net::input_shape.size();
  constexpr int vocabulary = Net::output_shape.channels();
  std::vector<int> tokens = encode(o.prompt, vocabulary);
  std::vector<float> x(Net::input_shape.size()), y(Net::output_shape.size());
  lockstep::Philox random(lockstep::mix(job.options().seed, lockstep::hash_name("sampling")));
  for (std::size_t i = 0; i < o.generate; ++i) {
    const std::span<const int> seen(tokens);
    const auto logits = next_logits(predictor, seen.last(std::min(context, seen.size())), x, y);
    tokens.push_back(sample(logits, o.temperature, o.top_k, random));
  }
  job.show_generated(decode(tokens, o.prompt, vocabulary));
}

/// Continues --prompt with the weights of --init.
template <class Net, class D>
void generate_from_file(Job& job) {
  const Options& o = job.options();
  Job::check_float32(*o.init);
  generate(lockstep::Predictor<Net, D>(*o.init, predictor_options<D>(o)), job);
}

}  // namespace support
