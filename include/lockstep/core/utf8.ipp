#pragma once

#include "lockstep/core/utf8.hpp"

#include <algorithm>

namespace lockstep::detail {

std::size_t code_point_size(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xC2 && first <= 0xDF   ? 2
                           : first >= 0xE0 && first <= 0xEF ? 3
                           : first >= 0xF0 && first <= 0xF4 ? 4
                                                            : 0;
  if (size == 0 || size > text.size()) return 0;
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < size; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  return size;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = code_point_size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string to_utf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t size = code_point_size(text);
    result += size > 0 ? text.substr(0, size) : std::string_view("\xEF\xBF\xBD");
    text.remove_prefix(std::max(size, std::size_t{1}));
  }
  return result;
}

}  // namespace lockstep::detail
