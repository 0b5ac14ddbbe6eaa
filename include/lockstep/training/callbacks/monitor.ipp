#pragma once

#include "lockstep/training/callbacks/monitor.hpp"

#include <cmath>
#include <utility>

#include "lockstep/core/finite.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::detail {

Monitor::Monitor(const char* callback, std::string name, MonitorMode mode, double min_delta)
    : callback_(callback),
      name_(std::move(name)),
      mode_(mode == MonitorMode::automatic ? mode_of(name_) : mode),
      min_delta_(std::abs(min_delta)) {
  if (!is_finite(min_delta))
    throw UsageError({callback, ": min_delta is ", min_delta, "; it must be finite"});
}

void Monitor::begin(const std::vector<std::string>& metrics) {
  has_warned_ = false;
  if (mode_ != MonitorMode::automatic) return;
  std::string of_training, of_validation;
  bool is_known = false;
  for (const std::string& metric : metrics) {
    add_item(of_training, ", ", {metric});
    add_item(of_validation, ", ", {"val_", metric});
    is_known = is_known || name_ == metric || name_ == "val_" + metric;
  }
  if (!is_known)
    throw UsageError({callback_, ": the model has no value named '", name_, "', only ", of_training,
                      " and with validation data ", of_validation,
                      "; set .monitor to one of them, or .mode if another callback logs '", name_,
                      "'"});
  throw UsageError({callback_, ": whether '", name_,
                    "' should fall or rise is not known; set .mode to MonitorMode::min or max"});
}

std::optional<double> Monitor::value(const Logs& logs, int rank) {
  const auto found = logs.get(name_);
  if (found || rank != 0 || std::exchange(has_warned_, true)) return found;
  std::string known;
  bool has_validation = false;
  for (const auto& [name, ignored] : logs) {
    add_item(known, ", ", {name});
    has_validation = has_validation || name.starts_with("val_");
  }
  log(LogLevel::warning,
      text({callback_, ": there is no value named '", name_, "' to watch, only ", known,
            name_.starts_with("val_") && !has_validation
                ? "; give fit validation data in each epoch "
                  "(.validation_freq = 1), or set .monitor"
                : "; set .monitor to one of them"}));
  return found;
}

bool Monitor::improves(double value, std::optional<double> reference) const {
  if (!reference) return true;
  return mode_ == MonitorMode::max ? value - min_delta_ > *reference
                                   : value + min_delta_ < *reference;
}

MonitorMode Monitor::mode_of(std::string_view name) {
  if (name.starts_with("val_")) name.remove_prefix(4);
  const auto digits = name.find_last_not_of("0123456789");  // auc_1 is the second auc
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

}  // namespace lockstep::detail
