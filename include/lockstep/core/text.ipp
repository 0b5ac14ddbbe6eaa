#pragma once

#include "lockstep/core/text.hpp"

#include <locale.h>

#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace lockstep::detail {

std::string print(const char* format, ...) {
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

}  // namespace lockstep::detail

namespace lockstep {

void Piece::append_to(std::string& message) const {
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

void add_item(std::string& list, std::string_view between, std::initializer_list<Piece> item) {
  if (!list.empty()) list += between;
  for (const Piece& piece : item) piece.append_to(list);
}

std::string text(std::initializer_list<Piece> pieces) {
  std::string message;
  for (const Piece& piece : pieces) piece.append_to(message);
  return message;
}

}  // namespace lockstep
