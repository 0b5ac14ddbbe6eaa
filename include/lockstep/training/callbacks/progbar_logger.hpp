/// \file
/// The progress of a run as a callback, to choose its place among the callbacks.
#pragma once

#include <memory>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/training/report/progress.hpp"

namespace lockstep {

/// Keras' ProgbarLogger. `fit` adds a Progress by itself, after all callbacks, unless one is among
/// them: with this one, callbacks after it write their lines after its.
/// \code
///   model.fit(train, {.callbacks = {ls::ProgbarLogger{}, std::make_shared<MyCallback>()}});
/// \endcode
struct ProgbarLogger {
  ProgressStyle style = ProgressStyle::automatic;

  /// The callback for `fit`, `evaluate` and `predict`.
  operator std::shared_ptr<Callback>() const { return std::make_shared<Progress>(style); }
};

}  // namespace lockstep
