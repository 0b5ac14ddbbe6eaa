/// \file
/// State that training changes, such as moving statistics, on several slices of a batch.
/// Invariants: all slices of a step begin with the same state; after a step, or one that failed,
/// all replicas hold the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "lockstep/concepts/device.hpp"
#include "lockstep/model/buffer.hpp"
#include "lockstep/model/plan.hpp"

namespace lockstep::detail {

/// The state after a step: of what each slice changed by its own examples, the mean over the slices
/// that have examples, weighted by their number, in double. So for moving statistics: moving = m
/// moving + (1 - m) sum(n_i statistic_i) / sum(n_i), but for the rounding of each slice's. Slices
/// of one replica are added in a binary tree, as their gradients are, and the collective adds those
/// of the replicas.
template <class Net, class D>
class StateAverage {
 public:
  using T = typename D::real;
  using Context = typename D::Context;
  using State = Buffer<Context, T>;

  /// Of `mine` slices out of `slices`: with only one there is nothing to add.
  [[gnu::cold]] StateAverage(Context& context, std::size_t slices, std::size_t mine)
      : context_(&context) {
    if constexpr (is_on) {
      before_ = State(context, Net::graph.state);
      if (slices == 1) return;
      after_.resize(Net::graph.state);
      sum_.resize(plan.averaged_size);
      for (std::size_t n = 1; n < mine; n *= 2) branches_.emplace_back(plan.averaged_size);
    }
  }

  /// Numbers that `sum` has for the exchange.
  std::size_t size() const { return sum_.size(); }

  /// Lives while a step runs: puts the state back if the step fails.
  class Step {
   public:
    Step(StateAverage& average, const State& state) : average_(&average), state_(&state) {
      if constexpr (is_on) average.copy(average.before_, state);
    }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    ~Step() {
      if constexpr (is_on) try {
          if (!done_) average_->copy(*state_, average_->before_);
        } catch (...) {  // the device is lost, and so is the state: the error under way says more
        }
    }
    void done() { done_ = true; }

   private:
    StateAverage* average_;
    const State* state_;
    bool done_ = false;
  };

  /// After slice i, of `count` examples. Afterwards `sum()` is of the slices so far, if it is the
  /// last of this replica.
  void add(std::size_t i, std::size_t count, bool last, const State& state) {
    if constexpr (is_on)
      if (!sum_.empty()) add_slice(i, count, last, state);
  }
  const std::vector<double>& sum() const { return sum_; }

  /// The state becomes what all slices of `count` examples in all made of it; `sums` are added up
  /// over all replicas.
  void take(const double* sums, std::size_t count, const State& state) {
    if constexpr (is_on)
      if (!sum_.empty()) take_mean(sums, count, state);
  }

 private:
  static constexpr auto& plan = PlanOf<Net, D>::plan;
  static constexpr bool is_on = plan.updates_state;

  void add_slice(std::size_t i, std::size_t count, bool last, const State& state) {
    std::fill(sum_.begin(), sum_.end(), 0.0);
    if (count > 0) {
      download(state, after_);
      each([&](std::size_t k, std::size_t at) {
        sum_[k] = static_cast<double>(count) * static_cast<double>(after_[at]);
      });
    }
    std::size_t b = 0;
    for (; last ? b < branches_.size() : (i >> b & 1) != 0; ++b)
      for (std::size_t k = 0; k < sum_.size(); ++k) sum_[k] += branches_[b][k];
    if (last) return;
    std::swap(sum_, branches_[b]);
    copy(state, before_);
  }

  void take_mean(const double* sums, std::size_t count, const State& state) {
    download(state, after_);
    each([&](std::size_t k, std::size_t at) {
      after_[at] = static_cast<T>(sums[k] / static_cast<double>(count));
    });
    upload(state, after_);
  }

  /// f(place in the sum, place in the state).
  template <class F>
  static void each(const F& f) {
    std::size_t k = 0;
    for (int r = 0; r < plan.averages; ++r) {
      const StateRange& range = plan.averaged[static_cast<std::size_t>(r)];
      for (std::size_t at = range.begin; at < range.end; ++at) f(k++, at);
    }
  }

  void copy(const State& to, const State& from) const {
    context_->copy(reinterpret_cast<std::byte*>(to.data()),
                   reinterpret_cast<const std::byte*>(from.data()), from.bytes());
  }
  void download(const State& state, std::vector<T>& to) const {
    state.download(to.data());
    wait_for(*context_);
  }
  void upload(const State& state, const std::vector<T>& from) const {
    state.upload(from.data());
    wait_for(*context_);
  }

  Context* context_;
  State before_;  // on the device
  std::vector<T> after_;
  std::vector<double> sum_;
  std::vector<std::vector<double>> branches_;  // of slices that wait for others
};

}  // namespace lockstep::detail
