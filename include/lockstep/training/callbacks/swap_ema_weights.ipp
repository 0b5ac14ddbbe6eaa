#pragma once

#include "lockstep/training/callbacks/swap_ema_weights.hpp"

#include <string_view>

namespace lockstep::detail {

class SwapEMAWeightsHooks final : public Callback {
 public:
  explicit SwapEMAWeightsHooks(SwapEMAWeights options) : o_(options) {}

  void on_epoch_begin(int, const Logs&) override { swap_to(false); }
  void on_epoch_end(int, const Logs&) override {
    if (o_.swap_on_epoch) swap_to(true);
  }
  void on_test_begin(const Logs&) override { swap_to(true); }
  void on_test_end(const Logs&) override { swap_to(false); }
  void on_predict_begin(const Logs&) override { swap_to(true); }
  void on_predict_end(const Logs&) override { swap_to(false); }

  std::string_view state_name() const override { return "SwapEMAWeights"; }
  void save_state(CallbackState& state) const override { state.set("swapped", is_swapped_); }
  void load_state(const CallbackState& state) override {
    is_swapped_ = state.number("swapped") != 0;
  }

 private:
  void swap_to(bool averages) {
    if (is_swapped_ == averages) return;
    is_swapped_ = averages;
    control().swap_averages();
  }

  SwapEMAWeights o_;
  bool is_swapped_ = false;
};

}  // namespace lockstep::detail

namespace lockstep {

SwapEMAWeights::operator std::shared_ptr<Callback>() const {
  return std::make_shared<detail::SwapEMAWeightsHooks>(*this);
}

}  // namespace lockstep
