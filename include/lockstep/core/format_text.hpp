/// \file
/// Texts with values, formatted by fmt. Invariants: the number of values is checked when a program is
/// compiled, and with LOCKSTEP_CHECK_FORMATS, as in the library's tests, each format as well; a call
/// instantiates nothing of fmt, whose own front costs a program 50 MB of the compiler's memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/core/config.hpp"

#ifdef LOCKSTEP_CHECK_FORMATS
#include "lockstep/core/fmt_core.hpp"
#endif

namespace lockstep {

namespace detail {
template <class T>
inline constexpr bool is_other_character =
    std::is_same_v<T, wchar_t> || std::is_same_v<T, char8_t> || std::is_same_v<T, char16_t> ||
    std::is_same_v<T, char32_t>;

/// Numbers without loss in a TextValue: all but those of 128 bits and `long double`.
template <class T>
concept PlainNumber =
    (std::is_arithmetic_v<T> && !is_other_character<T> && sizeof(T) <= sizeof(long long)) ||
    (std::is_enum_v<T> && std::is_convertible_v<T, long long>);
}  // namespace detail

/// A number, a character or a text.
class TextValue {
 public:
  enum class Kind { boolean, character, integer, natural, single, real, text };

  template <detail::PlainNumber T>
  constexpr TextValue(T value) {
    if constexpr (std::is_enum_v<T>) {
      *this = TextValue(static_cast<std::underlying_type_t<T>>(value));
    } else if constexpr (std::is_same_v<T, bool>) {
      kind_ = Kind::boolean, natural_ = value;
    } else if constexpr (std::is_same_v<T, char>) {
      kind_ = Kind::character, integer_ = value;
    } else if constexpr (std::is_same_v<T, float>) {
      kind_ = Kind::single, real_ = static_cast<double>(value);
    } else if constexpr (std::is_same_v<T, double>) {
      kind_ = Kind::real, real_ = value;
    } else if constexpr (std::is_signed_v<T>) {
      kind_ = Kind::integer, integer_ = value;
    } else {
      kind_ = Kind::natural, natural_ = value;
    }
  }
  /// Refers to the text.
  constexpr TextValue(std::string_view text) : kind_(Kind::text), text_(text) {}
  constexpr TextValue(const std::string& text) : TextValue(std::string_view(text)) {}
  constexpr TextValue(const char* text)
      : TextValue(text == nullptr ? std::string_view("(null)") : std::string_view(text)) {}
  /// Emits one error for values of other types.
  template <class T>
    requires(!detail::PlainNumber<T> && !std::is_convertible_v<const T&, std::string_view>)
  constexpr TextValue(const T&) {
    static_assert(sizeof(T) == 0,
                  "lockstep::format_text: a value must be a number, a character or a text; pass "
                  "to_string(value), or fmt::format(\"{}\", value) with <lockstep/fmt.hpp>");
  }

  /// Calls f with the value, as one of seven types.
  template <class F>
  constexpr auto visit(const F& f) const {
    switch (kind_) {
      case Kind::boolean:
        return f(natural_ != 0);
      case Kind::character:
        return f(static_cast<char>(integer_));
      case Kind::integer:
        return f(integer_);
      case Kind::natural:
        return f(natural_);
      case Kind::single:
        return f(static_cast<float>(real_));
      case Kind::real:
        return f(real_);
      case Kind::text:
        break;
    }
    return f(text_);
  }

 private:
  Kind kind_;
  union {
    long long integer_;
    unsigned long long natural_;
    double real_;
    std::string_view text_;
  };
};

namespace detail {

/// The number of values that a format text takes; `malformed` if its braces do not match.
inline constexpr std::size_t malformed = static_cast<std::size_t>(-1);
constexpr std::size_t values_in(std::string_view text) {
  std::size_t count = 0, numbered = 0, depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (depth == 0 && (text[i] == '{' || text[i] == '}') && next == text[i]) {
      ++i;  // a brace
    } else if (text[i] == '{') {
      ++depth;  // also of a width within a field: "{:>{}}"
      if (next < '0' || next > '9') {
        ++count;
        continue;
      }
      std::size_t index = 0;
      for (std::size_t at = i + 1; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
        index = 10 * index + static_cast<std::size_t>(text[at] - '0');
      numbered = index + 1 > numbered ? index + 1 : numbered;
    } else if (text[i] == '}') {
      if (depth == 0) return malformed;
      --depth;
    }
  }
  return depth > 0 ? malformed : count > 0 ? count : numbered;
}

/// A literal with fields for values of these types.
template <class... Args>
struct CheckedText {
  template <class Text>
    requires std::is_convertible_v<const Text&, std::string_view>
  consteval CheckedText(const Text& literal) : text(literal) {
    if (values_in(text) != sizeof...(Args))
      throw "lockstep: the text has more or fewer fields than there are values";
#ifdef LOCKSTEP_CHECK_FORMATS
    static_cast<void>(fmt::format_string<const Args&...>(literal));
#endif
  }
  constexpr operator std::string_view() const { return text; }

  std::string_view text;
};

LOCKSTEP_COLD_DECL std::string format_values(std::string_view text, const TextValue* values,
                                             std::size_t count);

}  // namespace detail

/// The parameter of a function that also takes values of types Args.
template <class... Args>
using FormatText = detail::CheckedText<std::type_identity_t<Args>...>;

/// A text with values in its fields, in fmt's notation. If the format of a field does not fit its
/// value, as in "{:d}" of a text, the result is the text as it is, followed by the values: an error
/// must not be lost for its message. LOCKSTEP_CHECK_FORMATS makes this an error of the compiler.
/// \code
///   lockstep::format_text("{} of {:.2f}", name, 0.5)
/// \endcode
template <class... Args>
[[gnu::cold]] std::string format_text(FormatText<Args...> text, const Args&... args) {
  const TextValue values[] = {TextValue(0), TextValue(args)...};
  return detail::format_values(text, values + 1, sizeof...(Args));
}

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/format_text.ipp"
#endif
