#pragma once

#include "lockstep/training/checks/not_finite.hpp"

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

std::string name_not_finite(std::span<const NamedParameter> parameters,
                            FunctionRef<bool(const NamedParameter&)> gradient_is_finite,
                            FunctionRef<bool(const NamedParameter&)> weight_is_finite,
                            std::span<const double> losses,
                            FunctionRef<std::size_t(std::size_t)> replica_of, double penalty) {
  std::string replicas, gradients, values, what;
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (!is_finite(losses[i])) add_item(replicas, ", ", std::to_string(replica_of(i)));
  for (const NamedParameter& p : parameters) {
    if (!p.trainable) continue;
    if (!gradient_is_finite(p))
      add_item(gradients, ", ", parameter_name(p));
    else if (!weight_is_finite(p))
      add_item(values, ", ", parameter_name(p));
  }
  if (!replicas.empty()) add_item(what, "; ", format_text("the loss of replica {}", replicas));
  if (!gradients.empty()) add_item(what, "; ", format_text("the gradients of {}", gradients));
  if (!values.empty()) add_item(what, "; ", format_text("the weights of {}", values));
  if (!is_finite(penalty)) add_item(what, "; ", "the penalties");
  return what;
}

}  // namespace lockstep::detail
