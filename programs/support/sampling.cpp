#include "support/sampling.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <optional>

#include <lockstep/core/error.hpp>
#include <lockstep/core/quote.hpp>

namespace support {

namespace ls = lockstep;

namespace {

constexpr std::size_t bytes = 256;

bool is_numbers(const std::string& prompt, std::size_t vocabulary) {
  return vocabulary > bytes && !prompt.empty() &&
         prompt.find_first_not_of("0123456789 ") == std::string::npos;
}

}  // namespace

std::vector<int> encode(const std::string& prompt, std::size_t vocabulary) {
  std::vector<int> tokens;
  if (is_numbers(prompt, vocabulary)) {
    for (std::size_t begin = 0; begin < prompt.size();) {
      const std::size_t end = std::min(prompt.find(' ', begin), prompt.size());
      if (end > begin) {
        const std::string digits = prompt.substr(begin, end - begin);
        const auto token = ls::detail::whole_number<std::uint32_t>(digits);
        if (!token || *token >= vocabulary)
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

std::string decode(std::span<const int> tokens, const std::string& prompt, std::size_t vocabulary) {
  if (is_numbers(prompt, vocabulary)) return fmt::format("{}", fmt::join(tokens, " "));
  std::string text;
  for (const int token : tokens)
    if (static_cast<std::size_t>(token) < bytes)
      text += static_cast<char>(token);
    else
      text += fmt::format("<{}>", token);
  return text;
}

ls::SamplerOptions sampler_options(const Options& o) {
  constexpr double most = std::numeric_limits<float>::max();
  return {.temperature = static_cast<float>(std::min(o.text.temperature, most)),
          .top_k = o.text.top_k,
          .seed = o.seed};
}

}  // namespace support
