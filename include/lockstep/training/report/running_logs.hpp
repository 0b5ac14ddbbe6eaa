/// \file
/// Turns the sums of steps into the logs of an epoch. Invariant: the loss of an epoch is the mean
/// over its examples, penalties included; nothing is allocated after the first step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/metrics/weighted.hpp"

namespace lockstep::detail {

/// `wanted`, with numbers for names that are taken: "auc", "auc_1", "auc_2", as Keras has them. The
/// names of weighted metrics come last: what is taken then is "weighted_auc", "weighted_auc_1".
LOCKSTEP_COLD_DECL std::vector<std::string> log_names(
    std::initializer_list<std::string_view> wanted, std::initializer_list<bool> weighted = {});

template <class... Ms>
class RunningLogs {
 public:
  static constexpr std::size_t sum_count = (std::size_t{1} + ... + Ms::state_size);
  /// `sum_count` of them: on the heap, as a metric may have a large state.
  using Sums = std::vector<double>;

  static std::vector<std::string> names() {
    return log_names({"loss", Ms::name...}, {false, is_weighted_metric<Ms>...});
  }

  void reset() {
    std::fill(total_.begin(), total_.end(), 0.0);
    loss_ = 0;
    count_ = 0;
  }

  /// The sums of a global batch of `count` examples, and the penalties of the weights that it met.
  void add(const Sums& sums, std::size_t count, double penalty, const std::tuple<Ms...>& metrics) {
    const double examples = static_cast<double>(count), step_loss = sums[0] / examples + penalty;
    loss_ += step_loss * examples;
    count_ += examples;
    for (std::size_t i = 1; i < sum_count; ++i) total_[i] += sums[i];
    logs_.set("loss", loss_ / count_, step_loss);
    std::size_t at = 1, name = 1;
    const auto set = [&](const auto& metric) {
      logs_.set(names_[name++], metric.result(total_.data() + at), metric.result(sums.data() + at));
      at += metric.state_size;
    };
    std::apply([&](const auto&... metric) { (set(metric), ...); }, metrics);
  }

  const Logs& logs() const { return logs_; }
  /// The loss' place, which is not kept up, then the states of the metrics: `sum_count` of them.
  void copy_totals(Sums& to) const { std::copy_n(total_.data(), sum_count, to.data()); }

 private:
  Sums total_ = Sums(sum_count);
  double loss_ = 0, count_ = 0;
  Logs logs_;
  std::vector<std::string> names_ = names();
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/report/running_logs.ipp"
#endif
