#pragma once

#include "lockstep/tensorboard/update_freq.hpp"

#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep {

UpdateFreq::UpdateFreq(const char* name) : steps_(std::string_view(name) == "batch" ? 1 : 0) {
  if (steps_ == 0 && std::string_view(name) != "epoch")
    throw UsageError(
        "TensorBoard: update_freq is '{}'; it must be \"epoch\", \"batch\" or a number of steps",
        name);
}

UpdateFreq::UpdateFreq(std::int64_t steps) : steps_(static_cast<std::uint64_t>(steps)) {
  if (steps < 1)
    throw UsageError(
        "TensorBoard: update_freq is {}; it must be \"epoch\", \"batch\" or at least 1 step",
        steps);
}

}  // namespace lockstep
