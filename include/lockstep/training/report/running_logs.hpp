/// \file
/// Turns the sums of steps into the logs of an epoch. Invariant: the loss of an epoch is the mean
/// over its examples, penalties included; nothing is allocated after the first step.
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

/// `wanted`, with numbers for names that are taken: "auc", "auc_1", "auc_2", as Keras has them. The
/// names of weighted metrics come last: what is taken then is "weighted_auc", "weighted_auc_1".
LOCKSTEP_COLD_DECL std::vector<std::string> log_names(
    std::initializer_list<std::string_view> wanted, std::initializer_list<bool> weighted = {});

class RunningLogs {
 public:
  /// Writes the result of each metric, whose states lie one after the other.
  using Results = FunctionRef<void(const double* states, double* results)>;

  /// `names`: "loss", then each metric's. `sums` of a step: the loss, then the metrics' states.
  LOCKSTEP_COLD_DECL RunningLogs(std::vector<std::string> names, std::size_t sums);

  LOCKSTEP_DECL void reset();
  /// The sums of a global batch of `count` examples, and the penalties of the weights that it met.
  LOCKSTEP_DECL void add(std::span<const double> sums, std::size_t count, double penalty,
                         Results results);

  const std::vector<std::string>& names() const { return names_; }
  const Logs& logs() const { return logs_; }
  /// The loss' place, which is not kept up, then the states of the metrics.
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
