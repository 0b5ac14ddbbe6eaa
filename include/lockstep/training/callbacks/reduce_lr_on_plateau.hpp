/// \file
/// Lowers the learning rate of a training that no longer gets better. Invariant: all processes of a
/// job decide alike, since the numbers that they get are equal.
#pragma once

#include <algorithm>
#include <concepts>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/finite.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/text.hpp"
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
  template <std::same_as<std::shared_ptr<Callback>> Shared>
  operator Shared() const;
};

namespace detail {
template <std::same_as<ReduceLROnPlateau> Options>  // compiled only where it is used
class ReduceLROnPlateauHooks final : public Callback {
 public:
  explicit ReduceLROnPlateauHooks(const Options& options)
      : o_(options), monitor_("ReduceLROnPlateau", o_.monitor, o_.mode, o_.min_delta) {
    if (!(o_.factor >= 0 && o_.factor < 1))
      throw UsageError({"ReduceLROnPlateau: a factor of ", o_.factor,
                        " does not reduce; give one from 0 to below 1"});
    if (!(o_.min_lr >= 0) || !is_finite(o_.min_lr))
      throw UsageError({"ReduceLROnPlateau: min_lr ", o_.min_lr, "; give a rate of 0 or more"});
    if (o_.patience < 0 || o_.cooldown < 0)
      throw UsageError({"ReduceLROnPlateau: patience ", o_.patience, " and cooldown ", o_.cooldown,
                        "; give epochs, 0 or more"});
  }

  void on_train_begin(const Logs&) override {
    monitor_.begin(params().metrics);
    best_.reset();
    cooldown_ = wait_ = 0;
  }

  void on_epoch_end(int epoch, const Logs& logs) override {
    const double rate = control().learning_rate();
    control().log("learning_rate", rate);
    const auto current = monitor_.value(logs, params().rank);
    if (!current) return;
    if (cooldown_ > 0) {
      --cooldown_;
      wait_ = 0;
    }
    if (monitor_.improves(*current, best_)) {
      best_ = current;
      wait_ = 0;
      return;
    }
    if (cooldown_ > 0 || ++wait_ < o_.patience || rate <= o_.min_lr) return;
    const double reduced = std::max(rate * o_.factor, o_.min_lr);
    control().set_learning_rate(reduced);
    cooldown_ = o_.cooldown;
    wait_ = 0;
    if (o_.verbose && params().rank == 0)
      log(LogLevel::info, text({"epoch ", epoch + 1,
                                ": ReduceLROnPlateau reduces the learning "
                                "rate to ",
                                reduced}));
  }

 private:
  Options o_;
  Monitor monitor_;
  std::optional<double> best_;
  int cooldown_ = 0, wait_ = 0;
};
}  // namespace detail

template <std::same_as<std::shared_ptr<Callback>> Shared>
ReduceLROnPlateau::operator Shared() const {
  return std::make_shared<detail::ReduceLROnPlateauHooks<ReduceLROnPlateau>>(*this);
}

}  // namespace lockstep
