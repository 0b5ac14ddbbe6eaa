/// \file
/// A text as a template argument.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep {

/// Holds a string literal that is given as a template argument: the "image" of `In<"image", 28, 28>`.
template <std::size_t Size>
struct FixedString {
  char text[Size]{};

  // Implicit, so that a literal can be an argument.
  constexpr FixedString(const char (&literal)[Size]) {  // NOLINT(google-explicit-constructor)
    for (std::size_t i = 0; i < Size; ++i) text[i] = literal[i];
  }
  /// Without the terminating zero. Valid as long as this object: for ever, if it is a template
  /// argument.
  constexpr std::string_view view() const { return {text, Size - 1}; }
};

static_assert(FixedString("image").view() == "image");

}  // namespace lockstep
