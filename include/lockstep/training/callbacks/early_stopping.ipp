#pragma once

#include "lockstep/training/callbacks/early_stopping.hpp"

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep::detail {

class EarlyStoppingHooks final : public Callback {
 public:
  explicit EarlyStoppingHooks(const EarlyStopping& options)
      : o_(options), monitor_("EarlyStopping", o_.monitor, o_.mode, o_.min_delta) {
    if (o_.patience < 0)
      throw UsageError("EarlyStopping: patience is {}; it must be at least 0", o_.patience);
  }

  void on_train_begin(const Logs&) override {
    monitor_.begin(control());
    wait_ = 0;
    stopped_epoch_.reset();
    best_.reset();
    best_weights_ = no_weights();
  }

  void on_epoch_end(int epoch, const Logs& logs) override {
    const auto current = monitor_.value(logs, params().rank);
    if (!current || epoch < o_.start_from_epoch) return;
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

  bool may_log(std::string_view) const override { return false; }
  std::string_view state_name() const override { return "EarlyStopping"; }
  void save_state(CallbackState& state) const override {
    state.set("wait", wait_);
    state.set("best_epoch", best_epoch_);
    if (stopped_epoch_) state.set("stopped_epoch", *stopped_epoch_);
    if (best_) state.set("best", *best_);
    state.set("best_weights", best_weights_);
  }
  void load_state(const CallbackState& state) override {
    wait_ = static_cast<int>(state.count("wait"));
    best_epoch_ = static_cast<int>(state.count("best_epoch"));
    stopped_epoch_.reset();  // in an elastic job the run may have these values
    best_.reset();
    if (state.contains("stopped_epoch"))
      stopped_epoch_ = static_cast<int>(state.count("stopped_epoch"));
    if (state.contains("best")) best_ = state.number("best");
    best_weights_ = state.shared_bytes("best_weights");
  }

  void on_train_end(const Logs&) override {
    const bool is_verbose = o_.verbose && params().rank == 0;
    if (stopped_epoch_ && is_verbose)
      log(LogLevel::info, format_text("epoch {}: early stopping", *stopped_epoch_ + 1));
    if (o_.restore_best_weights && !best_ && wait_ > 0 && params().rank == 0)
      log(LogLevel::warning,
          format_text("EarlyStopping: '{}' was NaN in each epoch, so there is no best one; the "
                      "weights stay those of the last epoch",
                      o_.monitor));
    if (best_weights_->empty()) return;
    if (is_verbose)
      log(LogLevel::info,
          format_text("restored the weights of the best epoch, {}", best_epoch_ + 1));
    control().set_weights(*best_weights_);
    best_weights_ = no_weights();
  }

 private:
  static std::shared_ptr<const std::vector<std::byte>> no_weights() {
    return std::make_shared<const std::vector<std::byte>>();
  }
  void keep(int epoch) {
    best_epoch_ = epoch;
    if (o_.restore_best_weights)
      best_weights_ = std::make_shared<const std::vector<std::byte>>(control().weights());
  }

  EarlyStopping o_;
  Monitor monitor_;
  int wait_ = 0, best_epoch_ = 0;
  std::optional<int> stopped_epoch_;
  std::optional<double> best_;
  std::shared_ptr<const std::vector<std::byte>> best_weights_ = no_weights();  // also of states
};

}  // namespace lockstep::detail

namespace lockstep {

EarlyStopping::operator std::shared_ptr<Callback>() const {
  return std::make_shared<detail::EarlyStoppingHooks>(*this);
}

}  // namespace lockstep
