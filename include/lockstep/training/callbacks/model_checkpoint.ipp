#pragma once

#include "lockstep/training/callbacks/model_checkpoint.hpp"

#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/files/atomic_file.hpp"
#include "lockstep/files/file_status.hpp"
#include "lockstep/files/make_folders.hpp"
#include "lockstep/training/callbacks/fenced_callback.hpp"

namespace lockstep::detail {

class ModelCheckpointHooks final : public FencedCallback {
 public:
  explicit ModelCheckpointHooks(ModelCheckpoint options)
      : o_(std::move(options)), monitor_("ModelCheckpoint", o_.monitor, o_.mode, 0) {
    if (o_.filepath.empty())
      throw UsageError("ModelCheckpoint: filepath is empty; set it to the name of a file");
    best_ = o_.initial_value_threshold;
  }

  void on_train_begin(const Logs&) override {
    if (o_.save_best_only) monitor_.begin(control());
    has_warned_ = false;
    // Any value: only the names and the formats count.
    Logs known;
    for (const std::string& metric : params().metrics) {
      known.set(metric, 0.5);
      if (params().has_validation && o_.save_freq == 0) known.set("val_" + metric, 0.5);
    }
    epoch_ = params().initial_epoch;
    const auto batch = o_.save_freq == 0 ? std::nullopt : std::optional<std::size_t>(0);
    const std::string first = path_of(known, batch, [&](const std::string& name) {
      if (o_.save_freq == 0 && control().may_log(name)) return;
      std::string names = batch ? "epoch, batch" : "epoch";
      for (const auto& [key, value] : known) add_item(names, ", ", key);
      throw UsageError(
          "ModelCheckpoint: filepath has the name '{}', but {} has only {}; change .filepath", name,
          batch ? "a step" : "an epoch", names);
    });
    if (params().rank != 0) return;
    // A folder whose name has fields is made when its values are known.
    const std::string fixed = folder_of(o_.filepath.substr(0, o_.filepath.find('{')));
    make_folders(fixed);
    if (folder_of(first) != fixed) return;
    const bool is_folder = file_status(first).kind == FileKind::folder;
    check_writable(!o_.save_weights_only && is_folder ? first + "/latest" : first);
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

  bool may_log(std::string_view) const override { return false; }
  std::string_view state_name() const override { return "ModelCheckpoint"; }
  std::string described_writes() const override {
    std::string text = "ModelCheckpoint ";
    text += o_.save_freq == 0 ? "after each epoch" : format_text("every {} steps", o_.save_freq);
    if (!o_.save_best_only) return text;
    text += format_text(" with the best '{}'", o_.monitor);
    if (o_.mode != MonitorMode::automatic)
      text += o_.mode == MonitorMode::min ? " (min)" : " (max)";
    if (const auto& threshold = o_.initial_value_threshold)
      text += format_text(" beyond {}", *threshold);
    return text;
  }
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
    std::string missing;
    const std::string path =
        path_of(logs, batch, [&](const std::string& name) { add_item(missing, ", ", name); });
    if (!missing.empty() && params().rank == 0 && !std::exchange(has_warned_, true))
      log(LogLevel::warning,
          format_text("ModelCheckpoint: epoch {} has no value of {}, which is nan "
                      "in the path {}; choose names that each epoch logs",
                      epoch_ + 1, missing, path));
    if (params().rank == 0) make_folders(folder_of(path));
    if (o_.save_weights_only)
      control().save_weights(path);
    else
      control().save_checkpoint(path, 1);
    if (o_.verbose && params().rank == 0)
      log(LogLevel::info, format_text("epoch {}: saved {}", epoch_ + 1, path));
  }

  /// The part of a path before its last '/', with it; empty if there is none.
  static std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
  }

  /// `filepath` with its names replaced by values. Calls `missing` with each name that has none, for
  /// which nan stands.
  std::string path_of(const Logs& logs, std::optional<std::size_t> batch,
                      FunctionRef<void(const std::string&)> missing) const {
    std::string path;
    for (std::size_t at = 0; at < o_.filepath.size();) {
      const std::size_t open = o_.filepath.find('{', at);
      const std::size_t close = open == std::string::npos ? open : o_.filepath.find('}', open);
      if (close == std::string::npos) return path + o_.filepath.substr(at);
      path += o_.filepath.substr(at, open - at);
      path += value_of(o_.filepath.substr(open + 1, close - open - 1), logs, batch, missing);
      at = close + 1;
    }
    return path;
  }
  /// `field`: a name, and its format after a colon.
  std::string value_of(const std::string& field, const Logs& logs, std::optional<std::size_t> batch,
                       FunctionRef<void(const std::string&)> missing) const {
    const std::size_t colon = field.find(':');
    const std::string name = field.substr(0, colon);
    const std::string format =
        "{" + (colon == std::string::npos ? std::string() : field.substr(colon)) + "}";
    const auto value = logs.get(name);
    const bool is_count = name == "epoch" || (name == "batch" && batch);
    if (!is_count && !value) missing(name);
    try {
      if (name == "epoch") return formatted(format, epoch_ + 1);
      if (is_count) return formatted(format, *batch + 1);
      const double number = value.value_or(std::numeric_limits<double>::quiet_NaN());
      return format == "{}" ? python_number(number) : formatted(format, number);
    } catch (const std::runtime_error& e) {
      throw UsageError(
          "ModelCheckpoint: filepath has the format '{}' ({}); write '{{epoch:02d}}' "
          "or '{{loss:.4f}}'",
          field, e.what());
    }
  }
  template <class Value>
  static std::string formatted(const std::string& format, const Value& value) {
    return fmt::vformat(format, fmt::make_format_args(value));
  }

  ModelCheckpoint o_;
  Monitor monitor_;
  std::optional<double> best_;
  bool has_warned_ = false;
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
