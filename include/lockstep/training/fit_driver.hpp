/// \file
/// The interface of code that runs a fit from outside its loop. Invariant: the loop does not depend
/// on the reason.
#pragma once

namespace lockstep::detail {

/// Notified by a FitLoop, which it can move to another position between two calls of run_epochs.
class FitDriver {
 public:
  /// The loop is at a boundary; hooks follow.
  virtual void pass_boundary() = 0;
  /// The loop changes the model from here on, not a hook.
  virtual void begin_step() = 0;

 protected:
  ~FitDriver() = default;
};

}  // namespace lockstep::detail
