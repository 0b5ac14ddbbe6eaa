/// \file
/// Sets the learning rate of each epoch from a function.
#pragma once

#include <functional>
#include <memory>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// Keras' LearningRateScheduler: before each epoch, counted from 0, sets rate = schedule(epoch,
/// rate). Overrides the optimizer's own rate or schedule. Adds the rate to the epoch's logs as
/// "learning_rate". Source: keras/src/callbacks/learning_rate_scheduler.py.
/// \code
///   model.fit(train, {.epochs = 50, .callbacks = {lockstep::LearningRateScheduler{
///       [](int epoch, double) { return epoch < 30 ? 0.1 : epoch < 45 ? 0.01 : 0.001; }}}});
/// \endcode
struct LearningRateScheduler {
  std::function<double(int epoch, double rate)> schedule;  ///< returns the new rate
  bool verbose = false;                                    ///< log each rate

  /// The callback for `fit`. \throws UsageError if `schedule` is empty.
  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/learning_rate_scheduler.ipp"
#endif
