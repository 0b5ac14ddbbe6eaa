#pragma once

#include "lockstep/model/fusion.hpp"

#include <string>

namespace lockstep::detail {

std::string layers_of(const PlanStep& step, const Node* nodes) {
  std::string names;
  for (int k = 0; k < step.node_count; ++k) {
    const Node& n = nodes[step.nodes[static_cast<std::size_t>(k)]];
    if (k > 0) names += '+';
    names += n.is_activation ? std::string(n.class_name) : layer_name(n);
  }
  return names;
}

}  // namespace lockstep::detail
