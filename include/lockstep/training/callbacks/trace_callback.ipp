#pragma once

#include "lockstep/training/callbacks/trace_callback.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/files/atomic_file.hpp"
#include "lockstep/training/callbacks/trace_request.hpp"

namespace lockstep::detail {

class TraceHooks final : public TraceRequest {
 public:
  explicit TraceHooks(Trace options) : o_(std::move(options)) {
    if (o_.filename.empty()) throw UsageError("Trace: filename is empty; name a file");
    if (o_.steps == 0) throw UsageError("Trace: steps is 0; it must be at least 1");
  }

  std::string traced_steps() const override {
    return format_text("{} steps from {}", o_.steps,
                       o_.first_step ? format_text("step {}", *o_.first_step) : "the usual step");
  }

  void on_train_begin(const Logs&) override {
    if (params().rank == 0) check_writable(o_.filename);
    state_ = State::before;
    done_ = 0;
    first_ = o_.first_step.value_or(usual_first_step(0));
    if (!continues_epoch()) begin_if_due();
  }
  void on_train_batch_begin(std::size_t batch, const Logs&) override {
    batch_ = batch;
    if (done_ > 0 || !continues_epoch()) return;
    first_ = usual_first_step(batch);
    begin_if_due();
  }
  void on_train_batch_end(std::size_t batch, const Logs&) override {
    done_ += batch - batch_ + 1;
    if (state_ == State::records && done_ - first_ >= o_.steps) {
      state_ = State::done;
      write(control().end_trace());
    }
    begin_if_due();
  }
  void on_train_end(const Logs&) override {
    const std::string json = state_ == State::records ? control().end_trace() : std::string();
    if (state_ == State::done) return;
    if (state_ == State::records && done_ > first_)
      write(json);
    else if (params().rank == 0)
      log(LogLevel::warning,
          format_text("trace {}: nothing was written, since training ended after {} steps; lower "
                      ".first_step, which is {}",
                      o_.filename, done_, first_));
    state_ = State::done;
  }

 private:
  enum class State { before, records, done };

  /// Whether a checkpoint's position decides the usual first step, which is known at the first batch.
  bool continues_epoch() const { return params().resumed && !o_.first_step; }
  /// `done`: steps of the first epoch that this fit does not repeat.
  std::uint64_t usual_first_step(std::uint64_t done) const {
    constexpr std::uint64_t usual = 20;
    const TrainingParams& p = params();
    if (!p.steps) return usual;
    const auto epochs = static_cast<std::uint64_t>(std::max(p.epochs - p.initial_epoch, 0));
    const std::uint64_t all = *p.steps * epochs;
    return std::min(usual, (all - std::min(done, all)) / 2);
  }
  void begin_if_due() {
    if (state_ != State::before || done_ < first_) return;
    control().begin_trace(o_.steps);
    state_ = State::records;
  }
  void write(const std::string& json) const {
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
