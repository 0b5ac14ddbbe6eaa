/// \file
/// Lowers the learning rate when a monitored value no longer improves. Invariant: all processes of
/// a job make the same decision, since their logs are equal.
#pragma once

#include <memory>
#include <string>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/training/callbacks/monitor.hpp"

namespace lockstep {

/// Keras' ReduceLROnPlateau, with its defaults: rate = max(rate * factor, min_lr) after `patience`
/// epochs in which the value did not improve on the best so far by more than `min_delta`.
///
/// The next `cooldown` epochs do not count. A reduction overrides the optimizer's schedule for the
/// rest of the training (Keras raises an error instead). NaN is never the best value, as in
/// EarlyStopping. Adds the rate to each epoch's logs as
/// "learning_rate". Source: keras/src/callbacks/reduce_lr_on_plateau.py.
/// \code
///   model.fit(train, test, {.epochs = 50, .callbacks = {lockstep::ReduceLROnPlateau{
///       .factor = 0.5, .patience = 5, .min_lr = 1e-4}}});
/// \endcode
struct ReduceLROnPlateau {
  std::string monitor = "val_loss";                 ///< name in the logs
  double factor = 0.1;                              ///< in [0, 1)
  int patience = 10;                                ///< epochs
  bool verbose = false;                             ///< log each reduction
  MonitorModeOption mode = MonitorMode::automatic;  ///< whether lower or higher is better
  double min_delta = 1e-4;                          ///< smaller changes are not improvements
  int cooldown = 0;                                 ///< epochs
  double min_lr = 0;                                ///< lower bound of the rate

  /// The callback for `fit`. \throws UsageError if an option is invalid. `fit` throws UsageError if
  /// the mode is automatic and unknown for `monitor`; if no value has that name, the message lists
  /// those that exist.
  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/reduce_lr_on_plateau.ipp"
#endif
