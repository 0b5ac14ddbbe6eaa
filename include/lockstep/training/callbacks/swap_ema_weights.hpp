/// \file
/// Evaluates with the moving averages of the weights. Invariant: a training step never sees the
/// averages.
#pragma once

#include <memory>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// Keras' SwapEMAWeights: exchanges the weights with their moving averages for each evaluation and
/// prediction, or, with `swap_on_epoch`, from the end of an epoch to the begin of the next, so that
/// callbacks save the averages. The optimizer must keep averages. `fit` leaves the averages in the
/// model, and `predict` leaves the weights. In Keras 3.15, `fit` with `swap_on_epoch` leaves the
/// weights if it stops before its last epoch, and `predict` leaves the averages.
/// Source: keras/src/callbacks/swap_ema_weights.py.
/// \code
///   ls::Model model{Net{}, strategy, loss, ls::Adam{.with = {.use_ema = true}}};
///   model.fit(train, test, {.epochs = 10, .callbacks = {ls::SwapEMAWeights{}}});
/// \endcode
struct SwapEMAWeights {
  bool swap_on_epoch = false;

  /// The callback for `fit`, `evaluate` and `predict`, which throw UsageError if the optimizer keeps
  /// no averages.
  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/swap_ema_weights.ipp"
#endif
