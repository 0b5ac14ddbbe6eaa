/// \file
/// Text of others in messages. Invariant: what comes out is printable ASCII, of bounded length, so
/// that a hostile description can neither forge lines of a log nor fill it.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace lockstep::detail {

/// `text` in double quotes: bytes that are not printable ASCII escaped, cut after 80 characters.
/// \code
///   lockstep::detail::shown("a\nb");  // "a\x0ab"
/// \endcode
inline std::string shown(std::string_view text) {
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

/// True for the digits of ASCII, whatever the locale.
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The whole of `text` as a decimal number without sign or spaces; nothing if it is none, or does
/// not fit.
template <std::unsigned_integral N>
std::optional<N> whole_number(std::string_view text) {
  N number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace lockstep::detail
