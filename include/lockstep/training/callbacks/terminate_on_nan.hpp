/// \file
/// Ends a training whose loss, gradients or weights are not finite. Invariant: all processes of a
/// job end after the same step, since they have the same loss, gradients and weights.
#pragma once

#include <memory>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// Keras' TerminateOnNaN: training ends after the first step, or execution of several, whose
/// loss is NaN or infinite. Unlike in Keras, it also ends if a gradient of that step or a weight
/// after it is, since some ReLUs hide NaN from the loss: that costs one pass over both a step. The
/// error line names its last step, the replica whose examples gave that loss, and the parameters
/// whose gradients or weights are not finite. With `raise_error`, `fit` throws it instead. Source:
/// keras/src/callbacks/terminate_on_nan.py.
/// \code
///   model.fit(train, {.epochs = 3, .callbacks = {lockstep::TerminateOnNaN{}}});
/// \endcode
struct TerminateOnNaN {
  bool raise_error = false;

  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/terminate_on_nan.ipp"
#endif
