#pragma once

#include "lockstep/training/callbacks/unfreeze.hpp"

#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

class UnfreezeHooks final : public Callback {
 public:
  explicit UnfreezeHooks(Unfreeze options) : o_(std::move(options)) {
    if (o_.layers.empty())
      throw UsageError("Unfreeze: .layers is empty; set it to names, such as {{\"backbone/*\"}}");
    if (o_.at_epoch < 0)
      throw UsageError("Unfreeze: .at_epoch is {}; it must be at least 0", o_.at_epoch);
  }

  // An error of the names comes before the first step.
  void on_train_begin(const Logs&) override { set(o_.at_epoch); }
  void on_epoch_begin(int epoch, const Logs&) override { set(epoch); }
  void on_workers_change(const WorkersChange& change) override { set(change.epoch); }

 private:
  void set(int epoch) { control().set_trainable(o_.layers, epoch >= o_.at_epoch); }
  Unfreeze o_;
};

}  // namespace lockstep::detail

namespace lockstep {

Unfreeze::operator std::shared_ptr<Callback>() const {
  return std::make_shared<detail::UnfreezeHooks>(*this);
}

}  // namespace lockstep
