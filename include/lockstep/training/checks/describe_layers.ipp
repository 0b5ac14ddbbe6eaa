#pragma once

#include "lockstep/training/checks/describe_layers.hpp"

namespace lockstep::detail {

std::string describe_parameter(const NamedParameter& p) {
  std::string result = text({p.name, " ", p.shape});
  if (p.penalty.l1 != 0) result += " l1 " + shortest_number(p.penalty.l1);
  if (p.penalty.l2 != 0) result += " l2 " + shortest_number(p.penalty.l2);
  if (!p.trainable) result += " not trained";
  return result;
}

}  // namespace lockstep::detail
