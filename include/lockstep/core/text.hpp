/// \file
/// Messages put together from texts and numbers. Invariant: a place that builds one costs a few
/// stores and a call there; all else is here, once. Numbers have a point and no separators in every
/// locale that the program sets.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep {

namespace detail {
/// printf into a text of at most 399 characters, in the C locale.
[[gnu::format(printf, 1, 2)]] LOCKSTEP_COLD_DECL std::string print(const char* format, ...);
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
  LOCKSTEP_COLD_DECL void append_to(std::string& message) const;

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

/// Adds the parts to a list of texts, with `between` after what is there.
LOCKSTEP_COLD_DECL void add_item(std::string& list, std::string_view between,
                                 std::initializer_list<Piece> item);

/// The parts, one after another.
/// \code
///   lockstep::text({"example ", 7, " of shape ", lockstep::shape(28, 28, 1)});
/// \endcode
LOCKSTEP_COLD_DECL std::string text(std::initializer_list<Piece> pieces);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/text.ipp"
#endif
