#pragma once

#include "lockstep/training/callbacks/terminate_on_nan.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers/finite.hpp"

namespace lockstep::detail {

class TerminateOnNaNHooks final : public Callback {
 public:
  explicit TerminateOnNaNHooks(TerminateOnNaN options) : o_(options) {}

  void on_train_begin(const Logs&) override {
    step_ = params().first_step;
    has_ended_ = false;
  }
  void on_epoch_begin(int epoch, const Logs&) override { epoch_ = epoch; }
  void on_train_batch_begin(std::size_t batch, const Logs&) override { first_ = batch; }
  void on_train_batch_end(std::size_t batch, const Logs& logs) override {
    // The last step's loss misses earlier steps of the execution; the running mean includes them.
    const double last = logs.step("loss"), loss = detail::is_finite(last) ? logs["loss"] : last;
    step_ += batch - first_ + 1;
    if (has_ended_) return;  // other steps of the same round
    if (detail::is_finite(loss) && control().is_finite()) return;
    const std::string where = control().not_finite();
    // Everything is finite after all: is_finite() sums squares, which overflow for large doubles.
    if (detail::is_finite(loss) && where.empty()) return;
    std::string what = format_text("step {} (epoch {}, batch {}): the loss is {}", step_,
                                   epoch_ + 1, batch + 1, loss);
    if (!where.empty()) what += "; not finite: " + where;
    if (o_.raise_error) throw Error("{}; lower the learning rate, or clip the gradients", what);
    if (params().rank == 0) log(LogLevel::error, what + "; training ends");
    has_ended_ = true;
    control().stop_training();
  }
  bool may_log(std::string_view) const override { return false; }

 private:
  TerminateOnNaN o_;
  std::uint64_t step_ = 0;  // counted from 1, as in the progress line
  std::size_t first_ = 0;   // first batch of the current execution
  int epoch_ = 0;
  bool has_ended_ = false;  // the run
};

}  // namespace lockstep::detail

namespace lockstep {

TerminateOnNaN::operator std::shared_ptr<Callback>() const {
  return std::make_shared<detail::TerminateOnNaNHooks>(*this);
}

}  // namespace lockstep
