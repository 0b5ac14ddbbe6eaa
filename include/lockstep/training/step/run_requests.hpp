/// \file
/// The requests of one process to all processes of a run. Invariant: all act on them after the same step.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <type_traits>

#include "lockstep/core/config.hpp"
#include "lockstep/core/process/stop_signals.hpp"

namespace lockstep::detail {

/// Requests that one process makes and all processes must act on after the same step.
///
/// Requests are all-reduced together with the step's sums, so agreement costs no extra message:
///
///     process 0  {}           --+
///     process 1  {stop_now}   --+-- step's all-reduce --> every process reads {stop_now}
///     process 2  {}           --+
///
/// Two learning rates cannot be summed: each replica has its own slot for a rate, and the rate of
/// the lowest rank wins, before those of ranks that compute nothing. Without such a request all use the rate that the chief's schedule gives.
struct RunRequests {
  bool stop_now = false;      ///< from the stop token; ends the run within the epoch
  bool end_training = false;  ///< from a callback; this epoch is the last one
  /// From a callback; applies from this step's update on.
  std::optional<double> learning_rate{};
  /// One of the stop_signals if a signal set the stop token, else 0. Exchanged so that every process
  /// ends with the signal's exit code, not only the one that received the signal.
  int signal = 0;
  /// In an elastic job: a process waits to join, and may after this step.
  bool admit = false;
  bool chief_terminated = false;  ///< a signal other than SIGINT asks rank 0 to end
  bool owner_terminated = false;  ///< the same of a process that owns a part of the weights
  /// From rank 0: the rate of this step, unless all processes are known to have the same.
  std::optional<double> chief_rate{};
  // Only of the agreed requests: replicas with stop_now, and with a signal other than SIGINT.
  std::size_t stopping = 0, terminated = 0, owners_terminated = 0;

  /// Those that still hold when the members of the job have changed: a process that asked to join has
  /// joined.
  RunRequests lasting() const {
    RunRequests result{stop_now, end_training};
    result.signal = signal;
    return result;
  }
};

/// Requests as numbers that are summed over all replicas; above 0 means requested.
struct SummedRequests {
  double stop_now, end_training, admit, chief_terminated, owner_terminated;
  double chief_rate;                                  ///< encoded
  std::array<double, stop_signals.size()> by_signal;  ///< in the order of stop_signals

  /// A rate as a number: 0 stands for none.
  LOCKSTEP_DECL static double encoded(const std::optional<double>& rate);
  LOCKSTEP_DECL static SummedRequests of(const RunRequests& requests);
  /// `rates`: the encoded rate of each slice, of which the first one counts.
  LOCKSTEP_DECL RunRequests requests(std::span<const double> rates) const;
};
static_assert(std::is_trivial_v<SummedRequests>);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/step/run_requests.ipp"
#endif
