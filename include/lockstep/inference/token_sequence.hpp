/// \file
/// `ls::TokenSequence`: tokens with the cached keys and values of a network's attention layers.
/// Invariant: after an exception the sequence has the tokens that it had before; if it was thrown while
/// the last tokens are computed again (keep_last), none.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/inference/predictor_core.hpp"
#include "lockstep/inference/sampler.hpp"

namespace lockstep {

/// Options of `generate`.
struct GenerateOptions {
  std::size_t tokens = 100;   ///< to generate at most
  SamplerOptions sampler{};   ///< temperature, top_k, seed
  std::optional<int> stop{};  ///< the token that ends a text; it is the last one of the result
  /// When the context is full, this number of the last tokens stays, and their keys and values are
  /// computed again from position 0; by default half of the context. The whole context less one gives
  /// each token the longest window, at the cost of a window per token.
  std::optional<std::size_t> keep{};
};

/// A sequence of tokens that grows, made by TextGenerator::sequence. Adding a token computes one step
/// of each layer, and attention to the cached keys and values of the steps before; nothing is
/// allocated. A prompt of several tokens is computed in blocks of steps, and the layers after the last
/// attention for its last token only.
///
/// An object belongs to one thread at a time, and its generator must outlive it.
/// \code
///   auto text = generator.sequence();
///   std::span<const float> logits = text.append(prompt);       // of the next token
///   while (text.size() < text.context()) logits = text.append(sample(logits));
/// \endcode
template <class D>
class TokenSequence {
 public:
  using T = typename D::real;

  [[gnu::cold]] TokenSequence(detail::PredictorCore<D>& core, std::size_t context)
      : core_(&core), context_(context), steps_(core.batch_size()), logits_(core.plan().output) {
    cache_.reserve(std::max(core.plan().once, std::size_t{1}));
    tokens_.reserve(context);
  }

  /// Adds tokens to the end and returns the logits of the next one, (vocabulary), which are valid until
  /// the next call. \throws UsageError if there is no token, if the context has no room for them, or if
  /// the embedding does not have one; DeviceError.
  std::span<const T> append(std::span<const int> tokens) {
    if (tokens.empty() || tokens.size() > context_ - tokens_.size()) [[unlikely]]
      refuse(tokens.size());
    const std::size_t before = tokens_.size(), last = tokens.size() - 1;
    has_logits_ = false;
    for (std::size_t done = 0; done < last;) {
      const std::size_t count = std::bit_floor(std::min(last - done, steps_.size()));
      run(before + done, tokens.subspan(done, count), nullptr);
      done += count;
    }
    run(before + last, tokens.subspan(last), logits_.data());
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    has_logits_ = true;
    return logits_;
  }
  std::span<const T> append(int token) { return append(std::span(&token, 1)); }

  /// The logits of the next token. \throws UsageError if the last call was not a successful `append`.
  std::span<const T> logits() const {
    if (!has_logits_)
      throw UsageError("text generator: there are no logits yet; append the tokens of a prompt");
    return logits_;
  }
  std::span<const int> tokens() const { return tokens_; }
  std::size_t size() const { return tokens_.size(); }
  /// The largest number of tokens: the steps of the network's input.
  std::size_t context() const { return context_; }
  /// Bytes of cached keys and values.
  std::size_t cache_bytes() const { return core_->plan().once; }

  /// Removes all tokens except the last `count`, which move to position 0: their keys and values are
  /// computed again, with `count` at a cost of a prompt. \throws UsageError if there are fewer.
  void keep_last(std::size_t count) {
    if (count > tokens_.size())
      throw UsageError("text generator: cannot keep the last {} tokens; the sequence has {}", count,
                       tokens_.size());
    const std::vector<int> kept(tokens_.end() - static_cast<std::ptrdiff_t>(count), tokens_.end());
    tokens_.clear();
    has_logits_ = false;
    if (count > 0) append(kept);
  }

  /// Continues the sequence: samples tokens, calls each(token), and returns them. When the context is
  /// full, begins again with the last tokens (GenerateOptions::keep). The last token is not appended:
  /// append it to go on after it. \throws UsageError for invalid
  /// options, if there is no token to continue, or as Sampler; DeviceError.
  std::vector<int> generate(const GenerateOptions& options = {}, FunctionRef<void(int)> each = {}) {
    const std::size_t keep = options.keep.value_or(context_ / 2);
    if (keep >= context_)
      throw UsageError(
          "text generator: keep is {}; it must be less than the {} steps of the context", keep,
          context_);
    Sampler sample(options.sampler);
    std::vector<int> made;
    made.reserve(std::min(options.tokens, context_));
    for (std::size_t i = 0; i < options.tokens; ++i) {
      if (i > 0) {
        if (tokens_.size() == context_) keep_last(keep);
        append(made.back());
      }
      made.push_back(sample(logits()));
      if (each) each(made.back());
      if (made.back() == options.stop) break;
    }
    return made;
  }

 private:
  void run(std::size_t position, std::span<const int> tokens, T* y) {
    for (std::size_t i = 0; i < tokens.size(); ++i) steps_[i] = static_cast<T>(tokens[i]);
    core_->run_steps(cache_.data(), position, steps_.data(), tokens.size(), y);
  }
  [[noreturn, gnu::cold, gnu::noinline]] void refuse(std::size_t count) const {
    if (count == 0)
      throw UsageError(
          "text generator: there is no token to append; begin with one, such as that of a line's "
          "end");
    throw UsageError(
        "text generator: {} tokens do not fit into the context of {} steps, which has {}; append "
        "fewer, or call keep_last before",
        count, context_, tokens_.size());
  }

  detail::PredictorCore<D>* core_;
  std::size_t context_;
  detail::AlignedBuffer cache_;
  std::vector<T> steps_;  // the tokens of one call
  std::vector<T> logits_;
  std::vector<int> tokens_;
  bool has_logits_ = false;
};

}  // namespace lockstep
