#pragma once

#include "lockstep/training/report/running_logs.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/model/graph.hpp"

namespace lockstep::detail {

std::vector<std::string> log_names(std::initializer_list<std::string_view> wanted,
                                   std::initializer_list<std::size_t> weighted) {
  std::vector<std::string> names(wanted.size());
  const auto place = [&](std::size_t i) { return i < weighted.size() ? weighted.begin()[i] : 0; };
  // First the names of unweighted metrics, then those of weighted ones.
  for (const bool now : {false, true})
    for (std::size_t i = 0; i < names.size(); ++i) {
      if ((place(i) > 0) != now) continue;
      std::string name(wanted.begin()[i]);
      names[i] = name;
      if (now) name.insert(place(i) - 1, "weighted_");
      for (int n = now ? 0 : 1; std::count(names.begin(), names.end(), names[i]) > 1; ++n)
        names[i] = layer_name(name, n);
    }
  return names;
}

RunningLogs::RunningLogs(std::vector<std::string> names, std::size_t sums)
    : names_(std::move(names)),
      total_(sums),
      results_(names_.size() - 1),
      step_results_(names_.size() - 1) {}

RunningLogs::State RunningLogs::state() const {
  State state{total_, loss_, count_, {}, {}};
  if (count_ == 0) return state;
  for (const std::string& name : names_) {
    state.values.push_back(logs_[name]);
    state.steps.push_back(logs_.step(name));
  }
  return state;
}

void RunningLogs::restore(const State& state) {
  const std::size_t logged = state.values.size();
  if (state.sums.size() != total_.size() || logged != state.steps.size() ||
      (logged != 0 && logged != names_.size()))
    throw UsageError("checkpoint: the logs of its epoch belong to other metrics; use the same");
  total_ = state.sums;
  loss_ = state.loss;
  count_ = state.count;
  for (std::size_t i = 0; i < logged; ++i) logs_.set(names_[i], state.values[i], state.steps[i]);
}

void RunningLogs::reset() {
  std::fill(total_.begin(), total_.end(), 0.0);
  loss_ = 0;
  count_ = 0;
}

void RunningLogs::add(std::span<const double> sums, std::size_t count, double mean_over,
                      double penalty, Results results) {
  const double examples = static_cast<double>(count),
               step_loss = (mean_over > 0 ? sums[0] / mean_over : 0) + penalty;
  loss_ += step_loss * examples;
  count_ += examples;
  for (std::size_t i = 1; i < total_.size(); ++i) total_[i] += sums[i];
  logs_.set("loss", loss_ / count_, step_loss);
  results(total_.data() + 1, results_.data());
  results(sums.data() + 1, step_results_.data());
  for (std::size_t i = 0; i < results_.size(); ++i)
    logs_.set(names_[i + 1], results_[i], step_results_[i]);
}

}  // namespace lockstep::detail
