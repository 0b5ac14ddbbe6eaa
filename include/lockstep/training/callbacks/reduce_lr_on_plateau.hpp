/// \file
/// Lowers the learning rate of a training that no longer gets better. Invariant: all processes of a
/// job decide alike, since the numbers that they get are equal.
#pragma once

#include <memory>
#include <string>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/training/callbacks/monitor.hpp"

namespace lockstep {

/// Keras' ReduceLROnPlateau, with its defaults: rate = max(rate * factor, min_lr) after `patience`
/// epochs in which the value was not better than the best so far by more than `min_delta`.
///
/// After that, `cooldown` epochs are not counted. A rate that the optimizer's schedule gave is
/// replaced for good (Keras refuses that). The rate of each epoch is in its logs as
/// "learning_rate". Source: keras/src/callbacks/reduce_lr_on_plateau.py.
/// \code
///   model.fit(train, test, {.epochs = 50, .callbacks = {lockstep::ReduceLROnPlateau{
///       .factor = 0.5, .patience = 5, .min_lr = 1e-4}}});
/// \endcode
struct ReduceLROnPlateau {
  std::string monitor = "val_loss";
  double factor = 0.1;
  int patience = 10;  ///< epochs
  bool verbose = false;
  MonitorMode mode = MonitorMode::automatic;
  double min_delta = 1e-4;
  int cooldown = 0;  ///< epochs
  double min_lr = 0;

  /// \throws UsageError if a number is wrong. `fit` throws it if the mode is automatic and not
  /// known for `monitor`, with the names of its values if none is called so.
  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/reduce_lr_on_plateau.ipp"
#endif
