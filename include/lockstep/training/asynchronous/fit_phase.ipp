#pragma once

#include "lockstep/training/asynchronous/fit_phase.hpp"

#include <algorithm>
#include <cstddef>

#include "lockstep/core/error.hpp"
#include "lockstep/training/fit_loop.hpp"

namespace lockstep::detail {

std::uint64_t FitPhase::steps_left(const FitLoop& loop) {
  const std::optional<std::uint64_t> steps = loop.run_.numbers.steps;
  if (!steps)
    throw UsageError(
        "fit: the first server hands out the steps by number, but the data never end; set "
        ".steps_per_epoch");
  std::uint64_t left = *steps - std::min(loop.done_, *steps);
  if (loop.data_size_) {
    const std::uint64_t size = *loop.data_size_, examples = size - std::min(loop.examples_, size);
    left = std::min(left, examples / loop.batch_size_ + (examples % loop.batch_size_ > 0 ? 1 : 0));
  }
  const std::uint64_t most = loop.options_.steps_per_execution;
  return most > 1 ? std::min(left, most) : left;
}

void FitPhase::run(FitLoop& loop) {
  if (loop.execution_.is_complete) return;  // a loss has interrupted its end
  Run& run = loop.run_;
  const bool calls_each = loop.options_.steps_per_execution == 1;
  std::uint64_t most = steps_left(loop);
  if (loop.execution_.steps == 0) {
    loop.execution_ = {.before = loop.replicas_.steps(), .has_data = most > 0};
    loop.made_ = {};
    if (most == 0) return;
    if (!calls_each) run.callbacks.on_train_batch_begin(static_cast<std::size_t>(loop.done_), {});
  }
  if (loop.checkpoints_)
    most = std::min(most, loop.checkpoints_->steps_until_due(loop.execution_.before));
  loop.first_update_ = std::min(loop.first_update_, loop.replicas_.updates());
  loop.note(Phase::data);
  const auto count_known = [&] {
    while (const auto number = take_step()) {
      const auto step = static_cast<std::size_t>(loop.done_ + loop.execution_.steps++);
      loop.made_.add(*number);
      ++loop.boundaries_;
      if (calls_each) run.callbacks.on_train_batch_begin(step, {});
      if (calls_each || loop.driver_ != nullptr) loop.replicas_.read_sums(loop.running_);
      loop.note_boundary();
      if (calls_each) run.callbacks.on_train_batch_end(step, loop.running_.logs());
    }
  };
  const auto end = [&] {
    end_phase();
    run.is_in_phase = false;
  };
  try {
    begin_phase(most, loop.made_);
    run.is_in_phase = true;
    for (bool goes_on = true; goes_on;) {
      CancellationDeferred::point();
      const bool admits = run.admits && loop.replicas_.has_newcomers();
      goes_on = advance(run.token.stop_requested() || run.stopped || admits, loop.kept_.rate);
      count_known();
    }
  } catch (const PeerLost&) {
    count_known();
    end();
    throw;
  }
  end();
  const RunRequests mine = run.pop_requests();
  loop.replicas_.exchange_requests(mine);
  loop.agreed_ = run.agreed_requests(mine);
  run.adopt_agreed_rate(loop.agreed_);
  loop.examples_ += loop.batch_size_ * loop.execution_.steps;
  loop.made_ = {};
  loop.execution_.is_complete = true;
  ++loop.boundaries_;  // one that a loss keeps from this line gets the state of the others
}

}  // namespace lockstep::detail
