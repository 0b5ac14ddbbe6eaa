/// \file
/// A learning rate for each epoch, from a function.
#pragma once

#include <functional>
#include <memory>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// Keras' LearningRateScheduler: before each epoch, counted from 0, the rate becomes
/// schedule(epoch, rate). It takes the place of the optimizer's own rate or schedule. The rate of
/// each epoch is in its logs as "learning_rate". Source:
/// keras/src/callbacks/learning_rate_scheduler.py.
/// \code
///   model.fit(train, {.epochs = 50, .callbacks = {lockstep::LearningRateScheduler{
///       [](int epoch, double) { return epoch < 30 ? 0.1 : epoch < 45 ? 0.01 : 0.001; }}}});
/// \endcode
struct LearningRateScheduler {
  std::function<double(int epoch, double rate)> schedule;
  bool verbose = false;

  /// \throws UsageError if there is no function.
  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/learning_rate_scheduler.ipp"
#endif
