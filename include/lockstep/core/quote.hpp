/// \file
/// Untrusted text in messages. Invariant: the result is UTF-8 of bounded length without characters
/// that control a terminal, so that hostile text can neither forge log lines nor flood the log.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// The characters that a message shows; the bytes of others are escaped. In text that must be ASCII,
/// such as a host name, a letter that looks like one of ASCII may be the mistake.
enum class Alphabet { ascii, unicode };

/// `text` with the bytes escaped of control characters, of invisible ones, of those that change the
/// direction of text, and of invalid UTF-8. Longer results than `limit` bytes end in "...".
/// \code
///   lockstep::detail::printable("gr\xC3\xB6\xC3\x9F" "e\n\xFF");  // größe\x0a\xff
/// \endcode
LOCKSTEP_COLD_DECL std::string printable(std::string_view text, std::size_t limit = 600,
                                         Alphabet alphabet = Alphabet::unicode);

/// `printable(text, 80, Alphabet::ascii)` in double quotes.
LOCKSTEP_COLD_DECL std::string quote(std::string_view text);

/// `printable(name, 80)` in single quotes.
LOCKSTEP_COLD_DECL std::string shown_name(std::string_view name);

/// True for 0 to 9, independent of the locale.
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// All of `text` as a decimal number without sign or spaces; nullopt if it is not one or does not
/// fit.
template <std::unsigned_integral N>
std::optional<N> whole_number(std::string_view text) {
  N number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/quote.ipp"
#endif
