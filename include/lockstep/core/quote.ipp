#pragma once

#include "lockstep/core/quote.hpp"

#include <array>
#include <utility>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/utf8.hpp"

namespace lockstep::detail {

/// Ranges of code points that terminals do not show. UTF-8 sorts as code points do.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 7> hidden_characters{{
    {{"\x00", 1}, "\x1F"},
    {"\x7F", "\xC2\x9F"},              // DEL and C1
    {"\xD8\x9C", "\xD8\x9C"},          // U+061C
    {"\xE2\x80\x8B", "\xE2\x80\x8F"},  // U+200B to U+200F
    {"\xE2\x80\xA8", "\xE2\x80\xAE"},  // U+2028 to U+202E
    {"\xE2\x81\xA0", "\xE2\x81\xAF"},  // U+2060 to U+206F
    {"\xEF\xBB\xBF", "\xEF\xBB\xBF"},  // U+FEFF
}};

std::string printable(std::string_view text, std::size_t limit, Alphabet alphabet) {
  std::string result;
  while (!text.empty()) {
    const std::size_t size = code_point_size(text);
    const std::string_view character = text.substr(0, size);
    bool is_shown = size == 1 || (size > 1 && alphabet == Alphabet::unicode);
    for (const auto& [first, last] : hidden_characters)
      if (character >= first && character <= last) is_shown = false;
    const std::string escaped =
        is_shown ? std::string() : format_text("\\x{:02x}", static_cast<unsigned char>(text[0]));
    const std::string_view piece = is_shown ? character : escaped;
    if (result.size() + piece.size() > limit) return result + "...";
    result += piece;
    text.remove_prefix(is_shown ? size : 1);
  }
  return result;
}

std::string quote(std::string_view text) {
  return '"' + printable(text, 80, Alphabet::ascii) + '"';
}

std::string shown_name(std::string_view name) { return "'" + printable(name, 80) + "'"; }

}  // namespace lockstep::detail
