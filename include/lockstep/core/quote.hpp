/// \file
/// Untrusted text in messages. Invariant: the result is printable ASCII of bounded length, so that
/// a hostile description can neither forge log lines nor flood the log.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// `text` in double quotes, with all bytes but printable ASCII escaped, cut after 80 characters.
/// \code
///   lockstep::detail::quote("a\nb");  // "a\x0ab"
/// \endcode
LOCKSTEP_COLD_DECL std::string quote(std::string_view text);

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
