/// \file
/// Layers that begin to train within a fit. Invariant: whether they train is a function of the epoch
/// alone, so a run that continues from a checkpoint, or after a loss, has the same setting.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// Gradual unfreezing (Howard and Ruder, 2018): the layers do not train before epoch `at_epoch`,
/// counted from 0, and train from then on. See Model::set_trainable for the patterns, and for what
/// happens to BatchNormalization and to the optimizer's slots. In a job of several processes all
/// must have the callback.
/// \code
///   model.fit(train, {.epochs = 9, .callbacks = {
///       lockstep::Unfreeze{.layers = {"backbone/block_2/*"}, .at_epoch = 3},
///       lockstep::Unfreeze{.layers = {"backbone/block_1/*"}, .at_epoch = 6}}});
/// \endcode
struct Unfreeze {
  std::vector<std::string> layers{};  ///< patterns of names
  int at_epoch = 1;

  /// The callback for `fit`. \throws UsageError if there are no layers, or `at_epoch` is negative.
  /// `fit` throws UsageError for a pattern that selects no layer.
  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/unfreeze.ipp"
#endif
