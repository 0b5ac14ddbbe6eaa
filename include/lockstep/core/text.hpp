/// \file
/// Messages put together from texts and numbers. Invariant: a place that builds one costs a few
/// stores and a call there; all else is here, once. Numbers have a point and no separators in every
/// locale that the program sets.
#pragma once

#include <locale.h>

#include <array>
#include <concepts>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>

#include "lockstep/core/shape.hpp"

namespace lockstep {

namespace detail {
/// printf into a text of at most 399 characters, in the C locale.
[[gnu::format(printf, 1, 2), gnu::noinline, gnu::cold]] inline std::string print(const char* format,
                                                                                 ...) {
  static const ::locale_t c_locale = ::newlocale(LC_ALL_MASK, "C", nullptr);
  const ::locale_t before = ::uselocale(c_locale);  // of this thread only
  std::array<char, 400> text{};
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  ::uselocale(before);
  return text.data();
}
}  // namespace detail

/// A part of a message: a text, a number (a real one with six decimals) or a shape. Lives no longer
/// than what it was made from.
class Piece {
 public:
  Piece(const char* text) : text_(text) {}
  Piece(const std::string& text) : text_(text) {}
  Piece(std::string_view text) : text_(text) {}
  template <std::integral N>
  Piece(N number)
      : kind_(number < N{} ? Kind::negative : Kind::number),
        number_(static_cast<std::uint64_t>(number)) {}
  Piece(double number) : kind_(Kind::real), real_(number) {}
  Piece(float number) : Piece(static_cast<double>(number)) {}
  Piece(const Shape& shape) : kind_(Kind::shape), shape_(&shape) {}

  /// Adds this part to the end of `message`.
  void append_to(std::string& message) const;

 private:
  enum class Kind { text, number, negative, real, shape };
  Kind kind_ = Kind::text;
  // NOLINTBEGIN(readability-identifier-naming): they are private, as the union is
  union {
    std::string_view text_;
    std::uint64_t number_;
    double real_;
    const Shape* shape_;
  };
  // NOLINTEND(readability-identifier-naming)
};

[[gnu::noinline, gnu::cold]] inline void Piece::append_to(std::string& message) const {
  switch (kind_) {
    case Kind::text:
      message += text_;
      return;
    case Kind::real:
      message += detail::print("%f", real_);
      return;
    case Kind::shape:
      message += to_string(*shape_);
      return;
    case Kind::negative:
      message += '-';
      message += std::to_string(0 - number_);
      return;
    case Kind::number:
      message += std::to_string(number_);
  }
}

/// Adds the parts to a list of texts, with `between` after what is there.
[[gnu::noinline, gnu::cold]] inline void add_item(std::string& list, std::string_view between,
                                                  std::initializer_list<Piece> item) {
  if (!list.empty()) list += between;
  for (const Piece& piece : item) piece.append_to(list);
}

/// The parts, one after another.
/// \code
///   lockstep::text({"example ", 7, " of shape ", lockstep::shape(28, 28, 1)});
/// \endcode
[[gnu::noinline, gnu::cold]] inline std::string text(std::initializer_list<Piece> pieces) {
  std::string message;
  for (const Piece& piece : pieces) piece.append_to(message);
  return message;
}

}  // namespace lockstep
