/// \file
/// Stops training when a monitored value no longer improves. Invariant: all processes of a job make
/// the same decision, since their logs are equal.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/training/callbacks/monitor.hpp"

namespace lockstep {

/// Keras' EarlyStopping, with its defaults: stops training after `patience` epochs in which the
/// value did not improve on the best so far by more than `min_delta`.
///
/// With a `baseline`, only epochs that are also better than the baseline reset the count. With
/// `restore_best_weights`, the parameters are those of the best epoch after training, even if
/// training ends for another reason. NaN is never the best value; Keras keeps a first value that is
/// NaN for ever. In a job of several processes, all must have the callback.
/// Source: keras/src/callbacks/early_stopping.py.
/// \code
///   model.fit(train, test, {.epochs = 100, .callbacks = {lockstep::EarlyStopping{
///       .monitor = "val_accuracy", .patience = 3, .restore_best_weights = true}}});
/// \endcode
struct EarlyStopping {
  std::string monitor = "val_loss";                 ///< name in the logs
  double min_delta = 0;                             ///< smaller changes are not improvements
  int patience = 0;                                 ///< epochs
  bool verbose = false;                             ///< log the stop
  MonitorModeOption mode = MonitorMode::automatic;  ///< whether lower or higher is better
  std::optional<double> baseline{};
  bool restore_best_weights = false;
  int start_from_epoch = 0;  ///< counted from 0; earlier epochs are ignored

  /// The callback for `fit`. \throws UsageError if an option is invalid. `fit` throws UsageError if
  /// the mode is automatic and unknown for `monitor`; if no value has that name, the message lists
  /// those that exist.
  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/early_stopping.ipp"
#endif
