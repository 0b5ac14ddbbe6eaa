#pragma once

#include "lockstep/training/step/updates.hpp"

#include <initializer_list>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

inline bool name_contains(const NamedParameter& p, std::string_view text) {
  return parameter_name(p).find(text) != std::string::npos;
}

/// Whether a layer of the library may have a parameter with such a name, so that models with
/// different layers can share a list.
inline bool is_usual_name(std::string_view text) {
  for (const std::string_view name :
       {"kernel", "bias", "gamma", "beta", "embeddings", "depthwise_kernel", "pointwise_kernel"})
    if (name.find(text) != std::string_view::npos) return true;
  return false;
}

std::size_t update_segments(std::span<const NamedParameter> parameters, bool each,
                            const NameList& no_decay, UpdateSegment* result) {
  UpdateSegment* next = result;
  for (const NamedParameter& p : parameters) {
    if (!p.trainable) continue;
    *next = {p.offset, p.offset + p.shape.size(), p.penalty};
    for (const std::string& text : no_decay)
      if (name_contains(p, text)) next->decays = false;
    if (!each && next > result && next[-1].penalty == next->penalty &&
        next[-1].decays == next->decays)
      next[-1].end = next->end;
    else
      ++next;
  }
  for (const std::string& text : no_decay) {
    bool found = is_usual_name(text);
    for (const NamedParameter& p : parameters) found |= p.trainable && name_contains(p, text);
    if (!found)
      throw UsageError(
          "exclude_from_weight_decay: no parameter's name contains '{}'; model.parameters() lists "
          "the names",
          text);
  }
  return static_cast<std::size_t>(next - result);
}

}  // namespace lockstep::detail
