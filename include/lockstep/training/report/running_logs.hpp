/// \file
/// Accumulates the sums of steps into the logs of an epoch. Invariants: the loss of an epoch is the
/// mean over its examples, penalties included; nothing is allocated after the first step.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/logs.hpp"

namespace lockstep::detail {

/// Unique names: duplicates in `wanted` get Keras' suffixes, "auc", "auc_1", "auc_2". Weighted
/// metrics are named last; a duplicate among them becomes "weighted_auc", then "weighted_auc_1".
/// `weighted`: 0, or for a weighted metric 1 + the place of "weighted_" in its name.
LOCKSTEP_COLD_DECL std::vector<std::string> log_names(
    std::initializer_list<std::string_view> wanted,
    std::initializer_list<std::size_t> weighted = {});

/// The running loss and metrics of an epoch, or of an evaluation:
///
///     loss   = sum(step_loss n) / sum(n)     n examples per step, penalties included
///     step_loss = sum of losses / mean_over  mean_over is n, or less if labels are ignored
///     metric = result(sum of the steps' states)
class RunningLogs {
 public:
  /// Computes each metric's result from its state; the states are contiguous.
  using Results = FunctionRef<void(const double* states, double* results)>;

  /// `names`: "loss", then the metrics' names. `sums`: number of sums per step, 1 for the loss plus
  /// the metrics' states.
  LOCKSTEP_COLD_DECL RunningLogs(std::vector<std::string> names, std::size_t sums);

  /// The sums of an epoch, for checkpoints.
  struct State {
    std::vector<double> sums;
    double loss = 0, count = 0;
    std::vector<double> values,
        steps;  ///< the logs, in the order of the names; empty before a step
  };
  LOCKSTEP_COLD_DECL State state() const;
  /// \throws UsageError if the state belongs to other metrics.
  LOCKSTEP_COLD_DECL void restore(const State& state);

  /// Starts a new epoch.
  LOCKSTEP_DECL void reset();
  /// Adds a step: the sums over its global batch of `count` examples, the number of examples that
  /// the loss is a mean over, and the penalties of the weights before its update.
  LOCKSTEP_DECL void add(std::span<const double> sums, std::size_t count, double mean_over,
                         double penalty, Results results);

  const std::vector<std::string>& names() const { return names_; }
  const Logs& logs() const { return logs_; }
  /// The metrics' states, from element 1 on; element 0 is unused.
  const std::vector<double>& totals() const { return total_; }

 private:
  std::vector<std::string> names_;
  std::vector<double> total_, results_, step_results_;
  double loss_ = 0, count_ = 0;
  Logs logs_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/report/running_logs.ipp"
#endif
