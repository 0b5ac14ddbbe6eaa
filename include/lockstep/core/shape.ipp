#pragma once

#include "lockstep/core/shape.hpp"

namespace lockstep {

std::string to_string(const Shape& s, std::string_view batch) {
  std::string text = "(";
  text += batch;
  for (int axis = 0; axis < s.rank; ++axis) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(s[axis]);
  }
  text += ')';
  return text;
}

}  // namespace lockstep
