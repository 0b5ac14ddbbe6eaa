#include "support/sampling.hpp"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>

#include <lockstep/core/error.hpp>
#include <lockstep/core/quote.hpp>

namespace support {

namespace ls = lockstep;

namespace {

constexpr int bytes = 256;

bool is_numbers(const std::string& prompt, int vocabulary) {
  return vocabulary > bytes && !prompt.empty() &&
         prompt.find_first_not_of("0123456789 ") == std::string::npos;
}

}  // namespace

std::vector<int> encode(const std::string& prompt, int vocabulary) {
  std::vector<int> tokens;
  if (is_numbers(prompt, vocabulary)) {
    for (std::size_t begin = 0; begin < prompt.size();) {
      const std::size_t end = std::min(prompt.find(' ', begin), prompt.size());
      if (end > begin) {
        const std::string digits = prompt.substr(begin, end - begin);
        const auto token = ls::detail::whole_number<std::uint32_t>(digits);
        if (!token || *token >= static_cast<std::uint32_t>(vocabulary))
          throw ls::UsageError("--prompt: token {} is not below {}, the size of the vocabulary",
                               digits, vocabulary);
        tokens.push_back(static_cast<int>(*token));
      }
      begin = end + 1;
    }
  } else {
    for (const char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
  }
  if (tokens.empty()) tokens.push_back('\n');
  return tokens;
}

std::string decode(std::span<const int> tokens, const std::string& prompt, int vocabulary) {
  if (is_numbers(prompt, vocabulary)) return fmt::format("{}", fmt::join(tokens, " "));
  std::string text;
  for (const int token : tokens)
    if (token < bytes)
      text += static_cast<char>(token);
    else
      text += fmt::format("<{}>", token);
  return text;
}

int sample(std::span<const float> logits, double temperature, std::size_t top_k,
           ls::Philox& random) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return static_cast<int>(largest - logits.begin());
  float least = -std::numeric_limits<float>::infinity();
  if (top_k > 0 && top_k < logits.size()) {
    std::vector<float> sorted(logits.begin(), logits.end());
    const auto last = sorted.begin() + static_cast<std::ptrdiff_t>(top_k - 1);
    std::nth_element(sorted.begin(), last, sorted.end(), std::greater<>());
    least = *last;
  }
  std::vector<double> weights;
  for (const float logit : logits)
    weights.push_back(
        logit < least ? 0 : std::exp((static_cast<double>(logit) - *largest) / temperature));
  double left = random.uniform() * std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t token = 0, last = 0;
  for (; token < weights.size(); ++token) {
    if (weights[token] == 0) continue;
    last = token;
    left -= weights[token];
    if (left < 0) break;
  }
  return static_cast<int>(last);  // the last possible one if rounding leaves something
}

}  // namespace support
