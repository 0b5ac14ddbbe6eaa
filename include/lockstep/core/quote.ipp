#pragma once

#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

std::string quote(std::string_view text) {
  constexpr std::size_t longest = 80;
  constexpr std::string_view digits = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool printable = byte >= 0x20 && byte < 0x7F;
    if (result.size() - 1 + (printable ? 1 : 4) > longest) return result + "...\"";
    if (printable) {
      result += c;
    } else {
      result += "\\x";
      result += digits[byte >> 4];
      result += digits[byte & 15];
    }
  }
  return result + '"';
}

}  // namespace lockstep::detail
