#pragma once

#include "lockstep/tensorboard/utf8.hpp"

#include <cstddef>

#include "lockstep/files/safetensors_header.hpp"

namespace lockstep::detail {

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
