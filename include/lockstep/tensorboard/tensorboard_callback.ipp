#pragma once

#include "lockstep/tensorboard/tensorboard_callback.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/tensorboard/event_writer.hpp"
#include "lockstep/tensorboard/model_graph.hpp"
#include "lockstep/tensorboard/weight_images.hpp"
#include "lockstep/training/callbacks/fenced_callback.hpp"

namespace lockstep::detail {

class TensorBoardHooks final : public FencedCallback {
 public:
  explicit TensorBoardHooks(TensorBoard options) : o_(std::move(options)) {
    if (o_.histogram_freq < 0)
      throw UsageError("TensorBoard: histogram_freq is {}; it must be at least 0",
                       o_.histogram_freq);
    if (o_.log_dir.empty())
      throw UsageError("TensorBoard: log_dir is empty; give the name of a folder");
  }
  TensorBoardHooks(const TensorBoardHooks&) = delete;
  TensorBoardHooks& operator=(const TensorBoardHooks&) = delete;
  ~TensorBoardHooks() override { close(SessionStatus::failed); }

  bool may_log(std::string_view) const override { return false; }
  std::string described_writes() const override { return "TensorBoard"; }
  void on_train_begin(const Logs&) override {
    close(SessionStatus::failed);  // an exception has ended the previous fit
    if (params().rank != 0) return;
    train_.emplace(o_.log_dir + "/train");
    begin_after_checkpoint(*train_);
    if (o_.write_graph) train_->add_graph(graph_of(control().architecture()));
    train_->flush();
    if (!o_.hparams.empty()) {
      session_.emplace(o_.log_dir);
      session_->begin_session(o_.hparams);
      session_->flush();
    }
    is_in_epoch_ = false;
    step_ = steps_at_epoch_ = control().steps();
    if (o_.histogram_freq > 0) before_ = control().tensors();
  }

  /// Continues the runs of a chief that was lost.
  void on_workers_change(const WorkersChange& change) override {
    if (train_) {  // the run may have gone back
      is_in_epoch_ = change.batch > 0;
      step_ = change.step;
      return;
    }
    if (!change.is_chief) return;
    is_in_epoch_ = change.batch > 0;
    step_ = change.step;
    steps_at_epoch_ = change.step - std::min<std::uint64_t>(change.batch, change.step);
    epoch_start_ = batch_start_ = Clock::now();
    try {
      train_.emplace(o_.log_dir + "/train");
      const std::uint64_t next = change.step + 1;
      if (static_cast<std::uint64_t>(change.epoch) <= next)
        train_->add_restart(static_cast<std::int64_t>(next));
      train_->flush();
    } catch (const FileError& error) {  // a job whose workers do not share the folder goes on
      train_.reset();
      log(LogLevel::warning, error.what());
      return;
    }
    if (o_.histogram_freq > 0) before_ = control().tensors();
  }

  void on_epoch_begin(int, const Logs&) override {
    if (!train_) return;
    is_in_epoch_ = true;
    step_ = steps_at_epoch_ = control().steps();
    epoch_start_ = Clock::now();
  }

  void on_train_batch_begin(std::size_t, const Logs&) override {
    if (train_) batch_start_ = Clock::now();
  }

  void on_train_batch_end(std::size_t, const Logs& logs) override {
    if (!train_) return;
    const std::uint64_t before = std::exchange(step_, control().steps());
    if (!o_.update_freq.is_due(before, step_)) return;
    begin_scalars();
    if (o_.write_steps_per_second)
      add("batch_steps_per_second",
          static_cast<double>(step_ - before) / seconds_since(batch_start_));
    for (const auto& [name, value] : logs) add("batch_" + name, value);
    write_scalars(*train_, step_);
  }

  void on_epoch_end(int epoch, const Logs& logs) override {
    control().check_membership();  // a chief that was frozen meanwhile writes no epoch again
    if (!train_) return;
    is_in_epoch_ = false;
    begin_scalars();
    for (const auto& [name, value] : logs)
      if (!name.starts_with(validation_prefix) && name != "learning_rate")
        add("epoch_" + name, value);
    add("epoch_learning_rate", control().learning_rate());
    if (o_.write_steps_per_second)
      add("epoch_steps_per_second",
          static_cast<double>(step_ - steps_at_epoch_) / seconds_since(epoch_start_));
    write_scalars(*train_, static_cast<std::uint64_t>(epoch));
    write_validation(epoch, logs);
    if (o_.histogram_freq > 0 && epoch % o_.histogram_freq == 0) write_tensors(epoch);
    train_->flush();
  }

  void on_test_end(const Logs& logs) override {
    if (params().rank != 0) return;
    begin_scalars();
    for (const auto& [name, value] : logs) add("evaluation_" + name + "_vs_iterations", value);
    if (EventWriter* const to = validation()) {
      write_scalars(*to, control().steps());
      to->flush();
    }
    if (!train_) validation_.reset();
  }

  void on_train_end(const Logs&) override {
    // A run that was interrupted within an epoch has no result, and may continue.
    const bool was_interrupted = is_in_epoch_ && step_ != steps_at_epoch_;
    if (was_interrupted) session_.reset();
    close(SessionStatus::succeeded);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::string_view validation_prefix = "val_";

  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  void begin_scalars() {
    tags_.clear();
    values_.clear();
  }
  void add(std::string tag, double value) {
    tags_.push_back(std::move(tag));
    values_.push_back(value);
  }
  /// Writes the scalars that `add` has collected.
  void write_scalars(EventWriter& to, std::uint64_t step) {
    if (tags_.empty()) return;
    scalars_.clear();
    for (std::size_t i = 0; i < tags_.size(); ++i) scalars_.push_back({tags_[i], values_[i]});
    to.add_scalars(scalars_, static_cast<std::int64_t>(step));
  }

  void write_validation(int epoch, const Logs& logs) {
    begin_scalars();
    for (const auto& [name, value] : logs)
      if (name.starts_with(validation_prefix))
        add("epoch_" + name.substr(validation_prefix.size()), value);
    if (tags_.empty()) return;
    EventWriter* const to = validation();
    if (to == nullptr) return;
    write_scalars(*to, static_cast<std::uint64_t>(epoch));
    to->flush();
  }

  void write_tensors(int epoch) {
    std::vector<NamedTensor> now = control().tensors();
    for (std::size_t i = 0; i < now.size(); ++i) {
      const NamedTensor& t = now[i];
      train_->add_histogram(t.name + "/histogram", t.values, epoch);
      if (o_.write_images)
        if (const WeightImages shown = weight_images(t); !shown.pixels.empty())
          train_->add_images(t.name + "/image", shown.image, shown.pixels, epoch);
      if (t.gradient.empty()) continue;
      train_->add_histogram(t.name + "/gradient/histogram", t.gradient, epoch);
      std::vector<float>& update = before_[i].values;
      for (std::size_t k = 0; k < update.size(); ++k) update[k] = t.values[k] - update[k];
      train_->add_histogram(t.name + "/update/histogram", update, epoch);
    }
    before_ = std::move(now);
  }

  /// The writer of the run "validation"; null if its file cannot be created, which is logged once.
  EventWriter* validation() {
    if (!validation_ && !has_failed_) try {
        validation_.emplace(o_.log_dir + "/validation");
        begin_after_checkpoint(*validation_);
      } catch (const FileError& error) {
        has_failed_ = true;
        log(LogLevel::warning, error.what());
      }
    return validation_ ? &*validation_ : nullptr;
  }

  /// Withdraws the values of steps that the previous run made after the checkpoint. A restart
  /// counts for all tags, so it is left out where it would withdraw epochs before the checkpoint.
  void begin_after_checkpoint(EventWriter& to) {
    const std::uint64_t next = params().first_step + 1;
    if (params().resumed && static_cast<std::uint64_t>(params().initial_epoch) <= next)
      to.add_restart(static_cast<std::int64_t>(next));
  }

  void close(SessionStatus status) {
    if (session_) session_->end_session(status == SessionStatus::succeeded);
    session_.reset();
    train_.reset();
    validation_.reset();
    before_.clear();
  }

  TensorBoard o_;
  std::optional<EventWriter> train_, validation_, session_;
  std::uint64_t step_ = 0,
                steps_at_epoch_ = 0;  // of the model's life: the last, and before the epoch
  bool is_in_epoch_ = false;
  bool has_failed_ = false;  // the validation file cannot be created
  Clock::time_point epoch_start_, batch_start_;
  std::vector<NamedTensor> before_;  // at the last histogram
  // Collected by add; kept, so that their memory is reused.
  std::vector<std::string> tags_;
  std::vector<double> values_;
  std::vector<Scalar> scalars_;
};

}  // namespace lockstep::detail

namespace lockstep {

TensorBoard::operator std::shared_ptr<Callback>() const {
  return std::make_shared<detail::TensorBoardHooks>(*this);
}

}  // namespace lockstep
