#pragma once

#include "lockstep/concepts/callback.hpp"

namespace lockstep {

TrainingControl::~TrainingControl() = default;

void TrainingControl::start_trace(std::uint64_t) {
  throw UsageError("callback: this run records no trace; use fit, evaluate or predict of a model");
}
void TrainingControl::set_trainable(const std::vector<std::string>&, bool) {
  throw UsageError("callback: this run does not train; call set_trainable in fit");
}
void TrainingControl::check_membership() {}
bool TrainingControl::may_log(std::string_view) const { return true; }
std::string TrainingControl::end_trace() {
  throw UsageError("callback: no trace is active; call begin_trace first");
}

Callback::~Callback() = default;

TrainingControl& Callback::control() const {
  if (control_ == nullptr)
    throw UsageError(
        "callback: no run is active; call control() and params() only from hooks that fit, "
        "evaluate or predict calls");
  return *control_;
}

}  // namespace lockstep
