/// \file
/// Checkpoints that a callback requests. Invariant: the loop of fit reads the request before its
/// first step; the callback has no hooks.
#pragma once

#include <string_view>
#include <utility>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/training/checkpoint/checkpoint_options.hpp"

namespace lockstep::detail {

/// A callback that stands for FitOptions::checkpoint.
class CheckpointRequest final : public Callback {
 public:
  CheckpointRequest(CheckpointOptions options, bool removes)
      : options_(std::move(options)), removes_(removes) {}
  const CheckpointOptions& options() const { return options_; }
  /// Whether the checkpoints are removed when training has ended.
  bool removes() const { return removes_; }
  bool may_log(std::string_view) const override { return false; }

 private:
  CheckpointOptions options_;
  bool removes_;
};

}  // namespace lockstep::detail
