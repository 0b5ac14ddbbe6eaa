#pragma once

#include "lockstep/training/callbacks/model_checkpoint.hpp"

#include <cstddef>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep::detail {

class ModelCheckpointHooks final : public Callback {
 public:
  explicit ModelCheckpointHooks(ModelCheckpoint options)
      : o_(std::move(options)), monitor_("ModelCheckpoint", o_.monitor, o_.mode, 0) {
    if (o_.filepath.empty())
      throw UsageError("ModelCheckpoint: filepath is empty; set it to the name of a file");
    best_ = o_.initial_value_threshold;
  }

  void on_train_begin(const Logs&) override {
    if (o_.save_best_only) monitor_.begin(params().metrics);
  }
  void on_epoch_begin(int epoch, const Logs&) override { epoch_ = epoch; }
  void on_train_batch_begin(std::size_t batch, const Logs&) override { first_ = batch; }
  void on_train_batch_end(std::size_t batch, const Logs& logs) override {
    if (o_.save_freq == 0) return;
    steps_ += batch - first_ + 1;
    if (steps_ < o_.save_freq) return;
    steps_ = 0;
    save(logs, batch);
  }
  void on_epoch_end(int epoch, const Logs& logs) override {
    epoch_ = epoch;
    if (o_.save_freq == 0) save(logs, {});
  }

  std::string_view state_name() const override { return "ModelCheckpoint"; }
  void save_state(CallbackState& state) const override {
    if (best_) state.set("best", *best_);
    state.set("steps", static_cast<double>(steps_));
  }
  void load_state(const CallbackState& state) override {
    best_ = o_.initial_value_threshold;
    if (state.contains("best")) best_ = state.number("best");
    steps_ = state.count("steps");
  }

 private:
  void save(const Logs& logs, std::optional<std::size_t> batch) {
    if (o_.save_best_only) {
      const auto value = monitor_.value(logs, params().rank);
      if (!value || !monitor_.improves(*value, best_)) return;
      best_ = value;
    }
    const std::string path = path_of(logs, batch);
    if (o_.save_weights_only)
      control().save_weights(path);
    else
      control().save_checkpoint(path, 1);
    if (o_.verbose && params().rank == 0)
      log(LogLevel::info, fmt::format("epoch {}: saved {}", epoch_ + 1, path));
  }

  /// `filepath` with its names replaced by values.
  std::string path_of(const Logs& logs, std::optional<std::size_t> batch) const {
    std::string path;
    for (std::size_t at = 0; at < o_.filepath.size();) {
      const std::size_t open = o_.filepath.find('{', at);
      const std::size_t close = open == std::string::npos ? open : o_.filepath.find('}', open);
      if (close == std::string::npos) return path + o_.filepath.substr(at);
      path += o_.filepath.substr(at, open - at);
      path += value_of(o_.filepath.substr(open + 1, close - open - 1), logs, batch);
      at = close + 1;
    }
    return path;
  }
  /// `field`: a name, and its format after a colon.
  std::string value_of(const std::string& field, const Logs& logs,
                       std::optional<std::size_t> batch) const {
    const std::size_t colon = field.find(':');
    const std::string name = field.substr(0, colon);
    const std::string format =
        "{" + (colon == std::string::npos ? std::string() : field.substr(colon)) + "}";
    try {
      if (name == "epoch") return formatted(format, epoch_ + 1);
      if (name == "batch" && batch) return formatted(format, *batch + 1);
      if (const auto value = logs.get(name))
        return format == "{}" ? python_number(*value) : formatted(format, *value);
    } catch (const std::runtime_error& e) {
      throw UsageError(
          "ModelCheckpoint: filepath has the format '{}' ({}); write '{{epoch:02d}}' "
          "or '{{loss:.4f}}'",
          field, e.what());
    }
    std::string known = batch ? "epoch, batch" : "epoch";
    for (const auto& [key, value] : logs) add_item(known, ", ", key);
    throw UsageError("ModelCheckpoint: filepath has the name '{}', but the logs have only {}", name,
                     known);
  }
  template <class Value>
  static std::string formatted(const std::string& format, const Value& value) {
    return fmt::vformat(format, fmt::make_format_args(value));
  }

  ModelCheckpoint o_;
  Monitor monitor_;
  std::optional<double> best_;
  std::uint64_t steps_ = 0;  // since the last save, also of an earlier fit
  std::size_t first_ = 0;    // first batch of the current execution
  int epoch_ = 0;
};

}  // namespace lockstep::detail

namespace lockstep {

ModelCheckpoint::operator std::shared_ptr<Callback>() const {
  return std::make_shared<detail::ModelCheckpointHooks>(*this);
}

}  // namespace lockstep
