/// \file
/// A learning rate for each epoch, from a function.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <utility>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep {

/// Keras' LearningRateScheduler: before each epoch, counted from 0, the rate becomes
/// schedule(epoch, rate). It takes the place of the optimizer's own rate or schedule. The rate of
/// each epoch is in its logs as "learning_rate". Source:
/// keras/src/callbacks/learning_rate_scheduler.py.
/// \code
///   model.fit(train, {.epochs = 50, .callbacks = {lockstep::LearningRateScheduler{
///       [](int epoch, double) { return epoch < 30 ? 0.1 : epoch < 45 ? 0.01 : 0.001; }}}});
/// \endcode
struct LearningRateScheduler {
  std::function<double(int epoch, double rate)> schedule;
  bool verbose = false;

  /// \throws UsageError if there is no function.
  template <std::same_as<std::shared_ptr<Callback>> Shared>
  operator Shared() const;
};

namespace detail {
template <std::same_as<LearningRateScheduler> Options>  // compiled only where it is used
class LearningRateSchedulerHooks final : public Callback {
 public:
  explicit LearningRateSchedulerHooks(Options options) : o_(std::move(options)) {
    if (!o_.schedule) throw UsageError("LearningRateScheduler: there is no schedule; give one");
  }

  void on_epoch_begin(int epoch, const Logs&) override {
    const double rate = o_.schedule(epoch, control().learning_rate());
    control().set_learning_rate(rate);
    if (o_.verbose && params().rank == 0)
      log(LogLevel::info, text({"epoch ", epoch + 1, ": the learning rate is ", rate}));
  }
  void on_epoch_end(int, const Logs&) override {
    control().log("learning_rate", control().learning_rate());
  }

 private:
  Options o_;
};
}  // namespace detail

template <std::same_as<std::shared_ptr<Callback>> Shared>
LearningRateScheduler::operator Shared() const {
  return std::make_shared<detail::LearningRateSchedulerHooks<LearningRateScheduler>>(*this);
}

}  // namespace lockstep
