/// \file
/// Ends a training that no longer gets better. Invariant: all processes of a job decide alike,
/// since the numbers that they get are equal.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/training/callbacks/monitor.hpp"

namespace lockstep {

/// Keras' EarlyStopping, with its defaults: training ends after `patience` epochs in which the
/// value was not better than the best so far by more than `min_delta`.
///
/// With a `baseline`, an epoch must also be better than that to count. With `restore_best_weights`
/// the parameters are those of the best epoch when training ends, for whatever reason. In a job of
/// several processes, all are to have the callback. Source:
/// keras/src/callbacks/early_stopping.py.
/// \code
///   model.fit(train, test, {.epochs = 100, .callbacks = {lockstep::EarlyStopping{
///       .monitor = "val_accuracy", .patience = 3, .restore_best_weights = true}}});
/// \endcode
struct EarlyStopping {
  std::string monitor = "val_loss";
  double min_delta = 0;
  int patience = 0;  ///< epochs
  bool verbose = false;
  MonitorMode mode = MonitorMode::automatic;
  std::optional<double> baseline{};
  bool restore_best_weights = false;
  int start_from_epoch = 0;  ///< counted from 0; earlier ones are not looked at

  /// \throws UsageError if a number is wrong. `fit` throws it if the mode is automatic and not
  /// known for `monitor`, with the names of its values if none is called so.
  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/early_stopping.ipp"
#endif
