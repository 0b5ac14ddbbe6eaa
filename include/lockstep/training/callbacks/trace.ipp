#pragma once

#include "lockstep/training/callbacks/trace.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/files/atomic_file.hpp"

namespace lockstep::detail {

class TraceHooks final : public Callback {
 public:
  explicit TraceHooks(Trace options) : o_(std::move(options)) {
    if (o_.filename.empty()) throw UsageError("Trace: filename is empty; name a file");
    if (o_.steps == 0) throw UsageError("Trace: steps is 0; it must be at least 1");
  }

  void on_train_begin(const Logs&) override {
    if (params().rank == 0) check_writable(o_.filename);
    state_ = State::before;
    done_ = 0;
    first_ = o_.first_step.value_or(usual_first_step());
    begin_if_due();
  }
  void on_train_batch_begin(std::size_t batch, const Logs&) override { batch_ = batch; }
  void on_train_batch_end(std::size_t batch, const Logs&) override {
    done_ += batch - batch_ + 1;
    if (state_ == State::records && done_ >= first_ + o_.steps) finish();
    begin_if_due();
  }
  void on_train_end(const Logs&) override {
    if (state_ == State::records) finish();
    if (state_ == State::before && params().rank == 0)
      log(LogLevel::warning,
          fmt::format("trace {}: nothing was written, since training ended after {} steps; lower "
                      ".first_step, which is {}",
                      o_.filename, done_, first_));
  }

 private:
  enum class State { before, records, done };

  std::uint64_t usual_first_step() const {
    constexpr std::uint64_t usual = 20;
    const TrainingParams& p = params();
    if (!p.steps) return usual;
    const auto epochs = static_cast<std::uint64_t>(std::max(p.epochs - p.initial_epoch, 0));
    return std::min(usual, *p.steps * epochs / 2);
  }
  void begin_if_due() {
    if (state_ != State::before || done_ < first_) return;
    control().begin_trace(o_.steps);
    state_ = State::records;
  }
  void finish() {
    state_ = State::done;
    const std::string json = control().end_trace();
    if (params().rank != 0) return;
    AtomicFile file(o_.filename);
    file.write(json);
    file.commit();
  }

  Trace o_;
  State state_ = State::before;
  std::uint64_t done_ = 0, first_ = 0;  // steps of this fit
  std::size_t batch_ = 0;               // first of the current execution
};

}  // namespace lockstep::detail

namespace lockstep {

Trace::operator std::shared_ptr<Callback>() const {
  return std::make_shared<detail::TraceHooks>(*this);
}

}  // namespace lockstep
