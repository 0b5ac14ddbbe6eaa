/// \file
/// A callback that writes files after an exchange of all processes of an elastic job. Invariant: the
/// processes compare when it writes before the first step, because its exchanges are collective.
#pragma once

#include <string>

#include "lockstep/concepts/callback.hpp"

namespace lockstep::detail {

/// A callback whose writes must be equal in all processes of an elastic job.
class FencedCallback : public Callback {
 public:
  /// Its name and when it writes, as text: "CSVLogger", "ModelCheckpoint every 100 steps".
  virtual std::string described_writes() const = 0;
};

}  // namespace lockstep::detail
