#pragma once

#include "lockstep/concepts/callback.hpp"

namespace lockstep {

TrainingControl::~TrainingControl() = default;

Callback::~Callback() = default;

TrainingControl& Callback::control() const {
  if (control_ == nullptr)
    throw UsageError(
        "callback: no run is active; call control() and params() only from hooks that fit, "
        "evaluate or predict calls");
  return *control_;
}

}  // namespace lockstep
