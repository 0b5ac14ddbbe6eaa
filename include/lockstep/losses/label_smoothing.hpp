/// \file
/// The option label_smoothing of losses with one-hot or binary targets.
#pragma once

#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// \throws UsageError if a label smoothing is outside [0, 1].
inline void check_label_smoothing(std::string_view loss, double smoothing) {
  if (!(smoothing >= 0 && smoothing <= 1))
    throw UsageError("{} label_smoothing {}: must be in [0, 1]; 0.1 is usual", loss, smoothing);
}

}  // namespace lockstep::detail
