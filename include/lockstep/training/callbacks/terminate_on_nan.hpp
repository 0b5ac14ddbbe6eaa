/// \file
/// Ends a training whose loss, gradients or weights are not finite. Invariant: all processes of a
/// job end after the same step, since they have the same loss, gradients and weights.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/finite.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep {

/// Keras' TerminateOnNaN: training ends after the first step, or execution of several, whose
/// loss is NaN or infinite. Unlike in Keras, it also ends if a gradient of that step or a weight
/// after it is, since some ReLUs hide NaN from the loss: that costs one pass over both a step. The
/// error line names its last step, the replica whose examples gave that loss, and the parameters
/// whose gradients or weights are not finite. With `raise_error`, `fit` throws it instead. Source:
/// keras/src/callbacks/terminate_on_nan.py.
/// \code
///   model.fit(train, {.epochs = 3, .callbacks = {lockstep::TerminateOnNaN{}}});
/// \endcode
struct TerminateOnNaN {
  bool raise_error = false;

  template <std::same_as<std::shared_ptr<Callback>> Shared>
  operator Shared() const;
};

namespace detail {
template <std::same_as<TerminateOnNaN> Options>  // compiled only where it is used
class TerminateOnNaNHooks final : public Callback {
 public:
  explicit TerminateOnNaNHooks(Options options) : o_(options) {}

  void on_train_begin(const Logs&) override { step_ = params().first_step; }
  void on_epoch_begin(int epoch, const Logs&) override { epoch_ = epoch; }
  void on_train_batch_begin(std::size_t batch, const Logs&) override { first_ = batch; }
  void on_train_batch_end(std::size_t batch, const Logs& logs) override {
    // The mean of the epoch so far knows of all steps of an execution.
    const double last = logs.step("loss"), loss = detail::is_finite(last) ? logs["loss"] : last;
    step_ += batch - first_ + 1;
    if (detail::is_finite(loss) && control().is_finite()) return;
    const std::string where = control().not_finite();
    if (detail::is_finite(loss) && where.empty()) return;  // squares of doubles overflow earlier
    std::string what = text(
        {"step ", step_, " (epoch ", epoch_ + 1, ", batch ", batch + 1, "): the loss is ", loss});
    if (!where.empty()) what += "; not finite: " + where;
    if (o_.raise_error) throw Error({what, "; lower the learning rate, or clip the gradients"});
    if (params().rank == 0) log(LogLevel::error, what + "; training ends");
    control().stop_training();
  }

 private:
  Options o_;
  std::uint64_t step_ = 0;  // counted from 1, as the progress line does
  std::size_t first_ = 0;   // batch of the execution
  int epoch_ = 0;
};
}  // namespace detail

template <std::same_as<std::shared_ptr<Callback>> Shared>
TerminateOnNaN::operator Shared() const {
  return std::make_shared<detail::TerminateOnNaNHooks<TerminateOnNaN>>(*this);
}

}  // namespace lockstep
