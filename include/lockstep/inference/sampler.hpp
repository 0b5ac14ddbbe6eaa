/// \file
/// `ls::Sampler`: the next token from logits. Invariants: tokens are a function of the seed, the number
/// of the draw and the logits, equal with every standard library; nothing is allocated after the first
/// draw.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/rng.hpp"

namespace lockstep {

/// Options of a Sampler.
struct SamplerOptions {
  float temperature = 1;   ///< logits are divided by it; 0: always the largest one
  int top_k = 0;           ///< draws from the k largest logits; 0: from all
  std::uint64_t seed = 0;  ///< of the draws
};

/// Draws a token from p = softmax(logits / temperature), with `top_k` among the k largest logits alone.
/// Of equal logits the ones with lower numbers count as larger. With temperature 0 the result is the
/// largest logit, whatever the seed. Minus infinity is a logit of probability 0.
///
/// An object belongs to one thread. Sources: Keras Hub's GreedySampler and TopKSampler; Fan et al.,
/// "Hierarchical neural story generation", 2018.
/// \code
///   ls::Sampler sample({.temperature = 0.8f, .top_k = 40, .seed = 1});
///   const int token = sample(logits);
/// \endcode
class Sampler {
 public:
  /// \throws UsageError for invalid options.
  [[gnu::cold]] explicit Sampler(const SamplerOptions& options = {})
      : options_(options), draws_(mix(options.seed, hash_name("sampler"))) {
    if (!(options.temperature >= 0) ||
        options.temperature == std::numeric_limits<float>::infinity())
      throw UsageError("sampler: temperature is {}; it must be finite and at least 0",
                       options.temperature);
    if (options.top_k < 0)
      throw UsageError("sampler: top_k is {}; it must be at least 1, or 0 for all tokens",
                       options.top_k);
  }

  /// The number of the token drawn. \throws UsageError if there are no logits, if one of them is NaN or
  /// infinity, or if all are minus infinity.
  int operator()(std::span<const float> logits) { return draw(logits); }
  int operator()(std::span<const double> logits) { return draw(logits); }

 private:
  template <class T>
  int draw(std::span<const T> logits) {
    const int best = largest(logits);
    if (options_.temperature == 0) return best;
    const double most = static_cast<double>(logits[static_cast<std::size_t>(best)]);
    const auto k = static_cast<std::size_t>(options_.top_k);
    const bool some = k > 0 && k < logits.size();
    if (some) select(logits, k);
    const std::size_t count = some ? k : logits.size();
    weights_.resize(count);
    double total = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double logit = static_cast<double>(logits[some ? index(i) : i]);
      weights_[i] = std::exp((logit - most) / static_cast<double>(options_.temperature));
      total += weights_[i];
    }
    const double mark = draws_.uniform() * total;
    std::size_t chosen = 0;
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (!(weights_[i] > 0)) continue;
      chosen = i;  // the last one with a probability if rounding leaves `mark` at the end
      sum += weights_[i];
      if (sum > mark) break;
    }
    return some ? tokens_[chosen] : static_cast<int>(chosen);
  }

  std::size_t index(std::size_t i) const { return static_cast<std::size_t>(tokens_[i]); }

  /// The first of the largest logits.
  template <class T>
  static int largest(std::span<const T> logits) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    if (logits.empty()) throw UsageError("sampler: there are no logits");
    std::size_t best = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (!(logits[i] < infinity)) [[unlikely]]
        throw UsageError(
            "sampler: logit {} is {}; check the weights, which may have diverged in training", i,
            logits[i]);
      if (logits[i] > logits[best]) best = i;
    }
    if (logits[best] == -infinity)
      throw UsageError("sampler: all logits are minus infinity; no token has a probability");
    return static_cast<int>(best);
  }
  /// Writes the numbers of the k largest logits to the begin of tokens_, in ascending order.
  template <class T>
  void select(std::span<const T> logits, std::size_t k) {
    tokens_.resize(logits.size());
    for (std::size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = static_cast<int>(i);
    const auto end = tokens_.begin() + static_cast<std::ptrdiff_t>(k);
    std::nth_element(tokens_.begin(), end - 1, tokens_.end(), [&](int a, int b) {
      const T x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
      return x > y || (x == y && a < b);
    });
    std::sort(tokens_.begin(), end);
  }

  SamplerOptions options_;
  Philox draws_;
  std::vector<int> tokens_;
  std::vector<double> weights_;
};

}  // namespace lockstep
