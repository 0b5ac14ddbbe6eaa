#pragma once

#include "lockstep/core/utf8.hpp"

#include <cstddef>

namespace lockstep::detail {

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
    const unsigned first = byte(i);
    const std::size_t length = first < 0x80                     ? 1
                               : first >= 0xC2 && first <= 0xDF ? 2
                               : first >= 0xE0 && first <= 0xEF ? 3
                               : first >= 0xF0 && first <= 0xF4 ? 4
                                                                : 0;
    if (length == 0 || length > text.size() - i) return false;
    if (length > 1) {
      const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
      const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
      if (byte(i + 1) < low || byte(i + 1) > high) return false;
      for (std::size_t k = 2; k < length; ++k)
        if (byte(i + k) < 0x80 || byte(i + k) > 0xBF) return false;
    }
    i += length;
  }
  return true;
}

std::string to_utf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    std::size_t size = 1;  // of the first code point
    while (size <= 4 && !is_utf8(text.substr(0, size))) ++size;
    result += size <= 4 ? text.substr(0, size) : std::string_view("\xEF\xBF\xBD");
    text.remove_prefix(size <= 4 ? size : 1);
  }
  return result;
}

}  // namespace lockstep::detail
