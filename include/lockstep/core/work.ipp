#pragma once

#include "lockstep/core/work.hpp"

#include <array>
#include <cstddef>

#include "lockstep/core/format_text.hpp"

namespace lockstep {

const char* to_string(WorkPass pass) {
  constexpr std::array names{"none",      "data",     "forward", "loss",      "backward",
                             "recompute", "exchange", "update",  "evaluation"};
  return names[static_cast<std::size_t>(pass)];
}

std::string name_of(const Work& work) {
  return work.layers == nullptr ? work.part : work.layers(work.index);
}

std::string describe(const Work& work) {
  if (work.pass == WorkPass::none) return "";
  const bool is_layer = work.layers != nullptr;
  std::string result = format_text("{}{}{} ({}", is_layer ? " of layer '" : " of the ",
                                   name_of(work), is_layer ? "'" : "", to_string(work.pass));
  if (work.pass != WorkPass::evaluation) result += format_text(", step {}", work.step);
  return result + ")";
}

}  // namespace lockstep
