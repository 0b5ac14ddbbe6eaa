#pragma once

#include "lockstep/training/callbacks/learning_rate_scheduler.hpp"

#include <string_view>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep::detail {

class LearningRateSchedulerHooks final : public Callback {
 public:
  explicit LearningRateSchedulerHooks(LearningRateScheduler options) : o_(std::move(options)) {
    if (!o_.schedule)
      throw UsageError("LearningRateScheduler: schedule is empty; set it to a function");
  }

  void on_epoch_begin(int epoch, const Logs&) override {
    const double rate = o_.schedule(epoch, control().learning_rate());
    control().set_learning_rate(rate);
    if (o_.verbose && params().rank == 0)
      log(LogLevel::info, format_text("epoch {}: the learning rate is {}", epoch + 1, rate));
  }
  void on_epoch_end(int, const Logs&) override {
    control().log("learning_rate", control().learning_rate());
  }
  bool may_log(std::string_view name) const override { return name == "learning_rate"; }

 private:
  LearningRateScheduler o_;
};

}  // namespace lockstep::detail

namespace lockstep {

LearningRateScheduler::operator std::shared_ptr<Callback>() const {
  return std::make_shared<detail::LearningRateSchedulerHooks>(*this);
}

}  // namespace lockstep
