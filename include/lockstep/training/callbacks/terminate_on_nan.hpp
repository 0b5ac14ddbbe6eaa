/// \file
/// Stops training when the loss, a gradient or a weight is not finite. Invariant: all processes of
/// a job stop after the same step, since they have the same loss and weights, and gradients unless
/// parameter servers own them.
#pragma once

#include <memory>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// Keras' TerminateOnNaN: stops training after the first step (or execution of several steps) whose
/// loss is NaN or infinite.
///
/// Unlike Keras, also checks the gradients of the step and the weights after it, which may overflow
/// after a finite loss; with parameter servers only the weights. The check costs one pass over both
/// per step. The log line names the execution's last step, the replica whose loss is not finite, and
/// the parameters whose gradients or weights are not. With `raise_error`, `fit` throws an Error with
/// the same text instead.
/// Source: keras/src/callbacks/terminate_on_nan.py.
/// \code
///   model.fit(train, {.epochs = 3, .callbacks = {lockstep::TerminateOnNaN{}}});
/// \endcode
struct TerminateOnNaN {
  bool raise_error = false;  ///< throw instead of stopping

  /// The callback for `fit`.
  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/terminate_on_nan.ipp"
#endif
