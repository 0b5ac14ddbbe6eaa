/// \file
/// The value that a callback monitors, and whether it improved. Invariant: a missing value or NaN
/// is never an improvement, not even as the first value.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/logs.hpp"

namespace lockstep {

/// Whether lower (min) or higher (max) values are better. `automatic` decides by the name, for
/// losses and lockstep's metrics.
enum class MonitorMode { automatic, min, max };

/// The option `.mode` of a callback: a MonitorMode, or Keras' word for one, "auto", "min" or "max".
/// \code
///   ls::EarlyStopping{.monitor = "score", .mode = ls::MonitorMode::max};  // or .mode = "max"
/// \endcode
class MonitorModeOption {
 public:
  constexpr MonitorModeOption(MonitorMode mode) : mode_(mode) {}
  /// \throws UsageError for another word.
  template <class Word>
    requires std::is_convertible_v<const Word&, std::string_view>
  MonitorModeOption(const Word& word) : MonitorModeOption(of(word)) {}
  constexpr operator MonitorMode() const { return mode_; }

 private:
  LOCKSTEP_COLD_DECL static MonitorMode of(std::string_view word);
  MonitorMode mode_;
};

namespace detail {

/// Keras' MonitorCallback: the shared part of EarlyStopping and ReduceLROnPlateau.
class Monitor {
 public:
  /// `callback`: its name, for messages. \throws UsageError unless min_delta is finite.
  LOCKSTEP_COLD_DECL Monitor(const char* callback, std::string name, MonitorMode mode,
                             double min_delta);

  /// Call before each fit; `metrics` are the names that fit itself logs. \throws UsageError if the
  /// mode is automatic and unknown for the name; lists the names if none matches.
  LOCKSTEP_COLD_DECL void begin(const std::vector<std::string>& metrics);
  /// The same, and warns if the run will never log the value.
  LOCKSTEP_COLD_DECL void begin(const TrainingControl& run);
  /// Rank 0 logs a warning if neither fit nor a callback will log the value.
  LOCKSTEP_COLD_DECL void warn_if_never_logged(const TrainingControl& run);
  /// The monitored value, or nullopt if the logs lack it; rank 0 then logs a warning, once per fit.
  LOCKSTEP_COLD_DECL std::optional<double> value(const Logs& logs, int rank);

  /// Whether `value` is better than `reference` by more than min_delta. NaN is never better, and
  /// any other value is better than none or NaN. Keras 3.15 keeps a first value that is NaN for
  /// ever.
  LOCKSTEP_COLD_DECL bool improves(double value, std::optional<double> reference) const;

 private:
  /// The mode that the name implies, or automatic if unknown.
  LOCKSTEP_COLD_DECL static MonitorMode mode_of(std::string_view name);

  const char* callback_;
  std::string name_;
  MonitorMode mode_;
  double min_delta_;
  bool has_warned_ = false;
};

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/monitor.ipp"
#endif
