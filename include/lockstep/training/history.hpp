/// \file
/// The return value of `fit`. Invariant: a name's values are in the order of the epochs that logged
/// it; a name that only some epochs log (validation_freq) has fewer values than there are epochs.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// The logs of each epoch (Keras' History). Cleared when a new training run begins. A run that
/// continues from a checkpoint also has the epochs before it.
/// \code
///   auto history = model.fit(train, {.epochs = 3});
///   double last = history["loss"].back();          // and history["val_loss"] with validation
///   for (int epoch : history.epoch) ...            // 0, 1, 2
/// \endcode
class History : public Callback {
 public:
  std::vector<int> epoch;  ///< numbers of the finished epochs, counted from 0

  /// The values of a name, one per epoch. \throws UsageError listing the known names for an unknown
  /// one.
  LOCKSTEP_DECL const std::vector<double>& operator[](std::string_view name) const&;
  /// On a temporary returns a copy, so that `for (double loss : model.fit(train)["loss"])` is safe.
  std::vector<double> operator[](std::string_view name) const&& { return (*this)[name]; }
  LOCKSTEP_DECL bool contains(std::string_view name) const;
  /// All names, in the order of the logs.
  LOCKSTEP_DECL std::vector<std::string> names() const;

  LOCKSTEP_DECL void on_train_begin(const Logs&) override;
  LOCKSTEP_COLD_DECL void on_epoch_end(int number, const Logs& logs) override;
  bool may_log(std::string_view) const override { return false; }
  std::string_view state_name() const override { return "History"; }
  LOCKSTEP_COLD_DECL void save_state(CallbackState& state) const override;
  LOCKSTEP_COLD_DECL void load_state(const CallbackState& state) override;

 private:
  LOCKSTEP_COLD_DECL std::vector<double>& values_of(const std::string& name);

  std::vector<std::pair<std::string, std::vector<double>>> values_;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/history.ipp"
#endif
