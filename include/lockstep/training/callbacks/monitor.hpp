/// \file
/// The value that a callback watches, and whether it got better. Invariant: a value that is not
/// there, or is NaN, is never better than one that is.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/logs.hpp"

namespace lockstep {

/// Whether a value gets better as it falls or as it rises. `automatic` knows the names of losses
/// and of lockstep's metrics.
enum class MonitorMode { automatic, min, max };

namespace detail {

/// Keras' MonitorCallback.
class Monitor {
 public:
  LOCKSTEP_COLD_DECL Monitor(const char* callback, std::string name, MonitorMode mode,
                             double min_delta);

  /// Before each fit, whose own values are `metrics`. \throws UsageError if the mode is automatic
  /// and the name says nothing; it lists the values if there is none of this name.
  LOCKSTEP_COLD_DECL void begin(const std::vector<std::string>& metrics);
  /// The value, or nothing. Then the process of rank 0 warns, once a fit, with the names that there
  /// are.
  LOCKSTEP_COLD_DECL std::optional<double> value(const Logs& logs, int rank);

  /// Whether `value` is better than `reference`, by more than min_delta.
  LOCKSTEP_COLD_DECL bool improves(double value, std::optional<double> reference) const;

 private:
  /// As the name says, or automatic.
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
