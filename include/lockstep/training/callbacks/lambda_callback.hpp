/// \file
/// A callback made of functions. Invariant: a hook without a function does nothing.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// Keras' LambdaCallback: an aggregate of functions with the hooks' names. Converts to the shared
/// pointer that `fit` expects. An exception of a function ends the run.
/// \code
///   model.fit(train, {.epochs = 3, .callbacks = {lockstep::LambdaCallback{
///       .on_epoch_end = [](int epoch, const lockstep::Logs& logs) {
///         fmt::print("{} {}\n", epoch, logs["loss"]);
///       }}}});
/// \endcode
struct LambdaCallback {
  using Whole = std::function<void(const Logs&)>;                     ///< of a whole run
  using Epoch = std::function<void(int epoch, const Logs&)>;          ///< epochs count from 0
  using Batch = std::function<void(std::size_t batch, const Logs&)>;  ///< batches count from 0

  Epoch on_epoch_begin{};
  Epoch on_epoch_end{};
  Whole on_train_begin{};
  Whole on_train_end{};
  Batch on_train_batch_begin{};
  Batch on_train_batch_end{};
  Whole on_test_begin{};
  Whole on_test_end{};
  Batch on_test_batch_begin{};
  Batch on_test_batch_end{};
  Whole on_predict_begin{};
  Whole on_predict_end{};
  Batch on_predict_batch_begin{};
  Batch on_predict_batch_end{};

  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/lambda_callback.ipp"
#endif
