/// \file
/// How often the callback TensorBoard writes values within an epoch.
#pragma once

#include <cstdint>

#include "lockstep/core/config.hpp"

namespace lockstep {

/// Keras' `update_freq`: "epoch", "batch", or a number of steps.
/// \code
///   ls::TensorBoard{.update_freq = "batch"};  // the same as .update_freq = 1
/// \endcode
class UpdateFreq {
 public:
  /// \throws UsageError unless `name` is "epoch" or "batch".
  LOCKSTEP_COLD_DECL UpdateFreq(const char* name);
  /// \throws UsageError unless `steps` is at least 1.
  LOCKSTEP_COLD_DECL UpdateFreq(std::int64_t steps);

  /// Whether one of the steps before + 1, ..., after is written; always false for "epoch".
  bool is_due(std::uint64_t before, std::uint64_t after) const {
    return steps_ > 0 && before / steps_ < after / steps_;
  }

 private:
  std::uint64_t steps_;  // 0: once per epoch
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/tensorboard/update_freq.ipp"
#endif
