/// \file
/// Ends a training that no longer gets better. Invariant: all processes of a job decide alike,
/// since the numbers that they get are equal.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/text.hpp"
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
  template <std::same_as<std::shared_ptr<Callback>> Shared>
  operator Shared() const;
};

namespace detail {
template <std::same_as<EarlyStopping> Options>  // compiled only where it is used
class EarlyStoppingHooks final : public Callback {
 public:
  explicit EarlyStoppingHooks(const Options& options)
      : o_(options), monitor_("EarlyStopping", o_.monitor, o_.mode, o_.min_delta) {
    if (o_.patience < 0)
      throw UsageError({"EarlyStopping: a patience of ", o_.patience, " epochs; give 0 or more"});
  }

  void on_train_begin(const Logs&) override {
    monitor_.begin(params().metrics);
    wait_ = 0;
    stopped_epoch_.reset();
    best_.reset();
    best_weights_.clear();
  }

  void on_epoch_end(int epoch, const Logs& logs) override {
    const auto current = monitor_.value(logs, params().rank);
    if (!current || epoch < o_.start_from_epoch) return;
    if (best_weights_.empty()) keep(epoch);
    ++wait_;
    if (monitor_.improves(*current, best_)) {
      best_ = current;
      keep(epoch);
      if (monitor_.improves(*current, o_.baseline)) wait_ = 0;
      return;
    }
    if (wait_ < o_.patience || epoch == 0) return;
    stopped_epoch_ = epoch;
    control().stop_training();
  }

  void on_train_end(const Logs&) override {
    const bool says = o_.verbose && params().rank == 0;
    if (stopped_epoch_ && says)
      log(LogLevel::info, text({"epoch ", *stopped_epoch_ + 1, ": early stopping"}));
    if (best_weights_.empty()) return;
    if (says)
      log(LogLevel::info,
          text({"the weights are those of the end of the best epoch, ", best_epoch_ + 1}));
    control().set_weights(best_weights_);
    best_weights_.clear();
  }

 private:
  void keep(int epoch) {
    best_epoch_ = epoch;
    if (o_.restore_best_weights) best_weights_ = control().weights();
  }

  Options o_;
  Monitor monitor_;
  int wait_ = 0, best_epoch_ = 0;
  std::optional<int> stopped_epoch_;
  std::optional<double> best_;
  std::vector<std::byte> best_weights_;
};
}  // namespace detail

template <std::same_as<std::shared_ptr<Callback>> Shared>
EarlyStopping::operator Shared() const {
  return std::make_shared<detail::EarlyStoppingHooks<EarlyStopping>>(*this);
}

}  // namespace lockstep
