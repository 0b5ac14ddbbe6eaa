#pragma once

#include "lockstep/training/callbacks/monitor.hpp"

#include <cmath>
#include <utility>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep {

MonitorMode MonitorModeOption::of(std::string_view word) {
  if (word == "auto") return MonitorMode::automatic;
  if (word == "min") return MonitorMode::min;
  if (word == "max") return MonitorMode::max;
  throw UsageError(
      "mode is {}; it must be MonitorMode::automatic, min or max, or the word \"auto\", \"min\" or "
      "\"max\"",
      detail::quote(word));
}

namespace detail {

Monitor::Monitor(const char* callback, std::string name, MonitorMode mode, double min_delta)
    : callback_(callback),
      name_(std::move(name)),
      mode_(mode == MonitorMode::automatic ? mode_of(name_) : mode),
      min_delta_(std::abs(min_delta)) {
  if (!is_finite(min_delta))
    throw UsageError("{}: min_delta is {}; it must be finite", callback, min_delta);
}

void Monitor::begin(const std::vector<std::string>& metrics) {
  has_warned_ = false;
  if (mode_ != MonitorMode::automatic) return;
  std::string of_training, of_validation;
  bool is_known = false;
  for (const std::string& metric : metrics) {
    add_item(of_training, ", ", metric);
    add_item(of_validation, ", ", format_text("val_{}", metric));
    is_known = is_known || name_ == metric || name_ == "val_" + metric;
  }
  if (!is_known)
    throw UsageError(
        "{}: fit logs no value named '{}', only {} and, with validation data, {}; set .monitor to "
        "one of them, or .mode if another callback logs '{}'",
        callback_, name_, of_training, of_validation, name_);
  throw UsageError(
      "{}: whether '{}' should fall or rise is unknown; set .mode to MonitorMode::min or max",
      callback_, name_);
}

void Monitor::begin(const TrainingControl& run) {
  begin(run.params().metrics);
  warn_if_never_logged(run);
}

void Monitor::warn_if_never_logged(const TrainingControl& run) {
  if (run.may_log(name_) || run.params().rank != 0 || std::exchange(has_warned_, true)) return;
  std::string known;
  for (const std::string& metric : run.params().metrics) add_item(known, ", ", metric);
  log(LogLevel::warning,
      format_text(
          "{}: no epoch will log a value named '{}'; {}", callback_, name_,
          name_.starts_with("val_") && !run.params().has_validation
              ? format_text("pass validation data to fit, or set .monitor to one of {}", known)
              : format_text("set .monitor to one of {}", known)));
}

std::optional<double> Monitor::value(const Logs& logs, int rank) {
  const auto found = logs.get(name_);
  if (found || rank != 0 || std::exchange(has_warned_, true)) return found;
  std::string known;
  bool has_validation = false;
  for (const auto& [name, ignored] : logs) {
    add_item(known, ", ", name);
    has_validation = has_validation || name.starts_with("val_");
  }
  log(LogLevel::warning,
      format_text("{}: the logs have no value named '{}', only {}{}", callback_, name_, known,
                  name_.starts_with("val_") && !has_validation
                      ? "; pass validation data to fit and validate in each epoch "
                        "(.validation_freq = 1), or set .monitor"
                      : "; set .monitor to one of them"));
  return found;
}

bool Monitor::improves(double value, std::optional<double> reference) const {
  if (is_nan(value)) return false;
  if (!reference || is_nan(*reference)) return true;
  return mode_ == MonitorMode::max ? value - min_delta_ > *reference
                                   : value + min_delta_ < *reference;
}

MonitorMode Monitor::mode_of(std::string_view name) {
  if (name.starts_with("val_")) name.remove_prefix(4);
  const auto digits = name.find_last_not_of("0123456789");  // "auc_1" is the second AUC
  if (digits != name.npos && digits + 1 < name.size() && name[digits] == '_')
    name = name.substr(0, digits);
  for (const std::string_view up : {"accuracy", "binary_accuracy", "top_k_categorical_accuracy",
                                    "precision", "recall", "auc", "cosine_similarity"})
    if (name == up) return MonitorMode::max;
  for (const std::string_view down :
       {"loss", "mean_squared_error", "root_mean_squared_error", "mean_absolute_error",
        "huber_loss", "log_cosh", "hinge", "poisson", "binary_crossentropy",
        "categorical_crossentropy", "sparse_categorical_crossentropy", "kl_divergence"})
    if (name == down) return MonitorMode::min;
  return MonitorMode::automatic;
}

}  // namespace detail
}  // namespace lockstep
