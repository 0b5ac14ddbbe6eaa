#pragma once

#include "lockstep/concepts/callback.hpp"

namespace lockstep {

TrainingControl::~TrainingControl() = default;

Callback::~Callback() = default;

TrainingControl& Callback::control() const {
  if (control_ == nullptr)
    throw UsageError(
        "callback: there is no run to control here; call control() and params() only from a hook "
        "that fit, evaluate or predict calls");
  return *control_;
}

}  // namespace lockstep
