/// \file
/// A callback that traces steps. Invariant: the processes of a job compare its steps before the
/// first one, because the end of a trace is collective.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/concepts/callback.hpp"

namespace lockstep::detail {

/// A callback whose traced steps must be equal in all processes of a job.
class TraceRequest : public Callback {
 public:
  /// The traced steps as text: "10 steps from step 20".
  virtual std::string traced_steps() const = 0;
  bool may_log(std::string_view) const override { return false; }
};

}  // namespace lockstep::detail
