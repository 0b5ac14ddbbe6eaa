#pragma once

#include "lockstep/training/callbacks/swap_ema_weights.hpp"

#include <string_view>

namespace lockstep::detail {

class SwapEMAWeightsHooks final : public Callback {
 public:
  explicit SwapEMAWeightsHooks(SwapEMAWeights options) : o_(options) {}

  void on_train_begin(const Logs&) override {
    control().swap_averages(true);  // throws if the optimizer keeps none
    control().swap_averages(false);
  }
  void on_epoch_begin(int, const Logs&) override { control().swap_averages(false); }
  void on_epoch_end(int, const Logs&) override {
    if (o_.swap_on_epoch) control().swap_averages(true);
  }
  void on_test_begin(const Logs&) override { control().swap_averages(true); }
  void on_test_end(const Logs&) override { control().swap_averages(false); }
  void on_predict_begin(const Logs&) override { control().swap_averages(true); }
  void on_predict_end(const Logs&) override { control().swap_averages(false); }
  bool may_log(std::string_view) const override { return false; }

 private:
  SwapEMAWeights o_;
};

}  // namespace lockstep::detail

namespace lockstep {

SwapEMAWeights::operator std::shared_ptr<Callback>() const {
  return std::make_shared<detail::SwapEMAWeightsHooks>(*this);
}

}  // namespace lockstep
