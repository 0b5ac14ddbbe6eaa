/// \file
/// How often the callback TensorBoard writes values within an epoch.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep {

/// Keras' `update_freq`: "epoch", "batch", or a number of steps.
/// \code
///   ls::TensorBoard{.update_freq = "batch"};  // the same as .update_freq = 1
/// \endcode
class UpdateFreq {
 public:
  /// \throws UsageError unless `name` is "epoch" or "batch".
  [[gnu::cold]] UpdateFreq(const char* name) : steps_(std::string_view(name) == "batch" ? 1 : 0) {
    if (steps_ == 0 && std::string_view(name) != "epoch")
      throw UsageError(
          "TensorBoard: update_freq is '{}'; it must be \"epoch\", \"batch\" or a number of steps",
          name);
  }
  /// \throws UsageError unless `steps` is at least 1.
  [[gnu::cold]] UpdateFreq(std::int64_t steps) : steps_(static_cast<std::uint64_t>(steps)) {
    if (steps < 1)
      throw UsageError(
          "TensorBoard: update_freq is {}; it must be \"epoch\", \"batch\" or at least 1 step",
          steps);
  }

  /// Whether one of the steps before + 1, ..., after is written; always false for "epoch".
  bool is_due(std::uint64_t before, std::uint64_t after) const {
    return steps_ > 0 && before / steps_ < after / steps_;
  }

 private:
  std::uint64_t steps_;  // 0: once per epoch
};

}  // namespace lockstep
