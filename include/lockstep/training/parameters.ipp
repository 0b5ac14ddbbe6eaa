#pragma once

#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

std::string value_name(std::span<const Node> nodes, ValueId value) {
  for (const Node& n : nodes)
    if (n.out == value) return layer_name(n.name, n.ordinal);
  return "input";
}

std::string parameter_name(const NamedParameter& p) {
  return text({layer_name(p.layer, p.ordinal), "/", p.name});
}

}  // namespace lockstep::detail
