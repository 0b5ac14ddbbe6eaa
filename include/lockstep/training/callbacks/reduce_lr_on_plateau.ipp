#pragma once

#include "lockstep/training/callbacks/reduce_lr_on_plateau.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers/finite.hpp"

namespace lockstep::detail {

class ReduceLROnPlateauHooks final : public Callback {
 public:
  explicit ReduceLROnPlateauHooks(const ReduceLROnPlateau& options)
      : o_(options), monitor_("ReduceLROnPlateau", o_.monitor, o_.mode, o_.min_delta) {
    if (!(o_.factor >= 0 && o_.factor < 1))
      throw UsageError("ReduceLROnPlateau: factor is {}; it must be at least 0 and below 1",
                       o_.factor);
    if (!(o_.min_lr >= 0) || !is_finite(o_.min_lr))
      throw UsageError("ReduceLROnPlateau: min_lr is {}; it must be finite and at least 0",
                       o_.min_lr);
    if (o_.patience < 0 || o_.cooldown < 0)
      throw UsageError(
          "ReduceLROnPlateau: patience is {} and cooldown is {}; both must be at least 0",
          o_.patience, o_.cooldown);
  }

  void on_train_begin(const Logs&) override {
    monitor_.begin(control());
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
      log(LogLevel::info, format_text("epoch {}: ReduceLROnPlateau reduces the learning rate to {}",
                                      epoch + 1, reduced));
  }

  bool may_log(std::string_view name) const override { return name == "learning_rate"; }
  std::string_view state_name() const override { return "ReduceLROnPlateau"; }
  void save_state(CallbackState& state) const override {
    if (best_) state.set("best", *best_);
    state.set("cooldown", cooldown_);
    state.set("wait", wait_);
  }
  void load_state(const CallbackState& state) override {
    best_.reset();
    if (state.contains("best")) best_ = state.number("best");
    cooldown_ = static_cast<int>(state.count("cooldown"));
    wait_ = static_cast<int>(state.count("wait"));
  }

 private:
  ReduceLROnPlateau o_;
  Monitor monitor_;
  std::optional<double> best_;
  int cooldown_ = 0, wait_ = 0;
};

}  // namespace lockstep::detail

namespace lockstep {

ReduceLROnPlateau::operator std::shared_ptr<Callback>() const {
  return std::make_shared<detail::ReduceLROnPlateauHooks>(*this);
}

}  // namespace lockstep
