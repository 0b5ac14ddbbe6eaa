/// \file
/// State that training changes, such as moving statistics, on several slices of a batch.
/// Invariants: all slices of a step begin with the same state; after a step, or one that failed,
/// all replicas hold the same; nothing here waits for the device.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/state_mean.hpp"
#include "lockstep/model/buffer.hpp"
#include "lockstep/model/plan.hpp"

namespace lockstep::detail {

/// The state of a model.
struct TrainedState {
  std::size_t size;
  bool changes;                          ///< in training
  std::span<const StateRange> averaged;  ///< what each slice changes by its own examples
  std::size_t averaged_size;
};

/// The state after a step: of what each slice changed by its own examples, the mean over the slices
/// that have examples, weighted by their number, in double. So for moving statistics: moving = m
/// moving + (1 - m) sum(n_i statistic_i) / sum(n_i), but for the rounding of each slice's. Slices
/// of one replica are added in a binary tree, as their gradients are, and the collective adds those
/// of the replicas.
template <class D>
class StateAverage {
 public:
  using T = typename D::real;
  using Context = typename D::Context;
  using State = Buffer<Context, T>;
  using Sums = Buffer<Context, double>;

  /// Of `mine` slices out of `slices`: with only one there is nothing to add.
  [[gnu::cold]] StateAverage(Context& context, const TrainedState& state, std::size_t slices,
                             std::size_t mine)
      : context_(&context), averaged_(state.averaged), is_on_(can && state.changes) {
    if (!is_on_) return;
    before_ = State(context, state.size);
    if (slices == 1) return;
    size_ = state.averaged_size;
    if (mine > 1) sum_ = Sums(context, size_);
    for (std::size_t n = 1; n < mine; n *= 2) partial_sums_.emplace_back(context, size_);
  }

  /// Whether some step of the model changes its state.
  bool is_on() const { return is_on_; }

  /// Numbers that are exchanged.
  std::size_t size() const { return size_; }

  /// Lives while a step runs: puts the state back if the step fails.
  class Rollback {
   public:
    Rollback(StateAverage& average, const State& state) : average_(&average), state_(&state) {
      if (average.is_on_) average.copy(average.before_, state);
    }
    Rollback(const Rollback&) = delete;
    Rollback& operator=(const Rollback&) = delete;
    ~Rollback() {
      if (average_->is_on_ && !is_committed_) try {
          average_->copy(*state_, average_->before_);
        } catch (...) {  // the device is lost, and so is the state: the error under way says more
        }
    }
    void commit() { is_committed_ = true; }

   private:
    StateAverage* average_;
    const State* state_;
    bool is_committed_ = false;
  };

  /// After slice i, of `count` examples; the last of this replica writes the sum of all of them to
  /// `sums`.
  void add(std::size_t i, std::size_t count, bool last, const State& state, double* sums) {
    if constexpr (can)
      if (size_ > 0) add_slice(i, count, last, state, sums);
  }

  /// The state becomes what all slices of `count` examples in all made of it; `sums` are added up
  /// over all replicas.
  void write_mean(double* sums, std::size_t count, const State& state) {
    if constexpr (can)
      if (size_ > 0)
        each(state, sums, count, [](const StateMeanIo<D>& io) { MeanKernel::write_mean(io); });
  }

 private:
  using MeanKernel = Kernel<StateMean, D>;
  static constexpr bool can = HasKernel<StateMean, D>;

  void add_slice(std::size_t i, std::size_t count, bool last, const State& state, double* sums) {
    double* const to = last ? sums : sum_.data();
    // What an empty slice leaves need not be a number.
    if (count > 0)
      each(state, to, count, [](const StateMeanIo<D>& io) { MeanKernel::weigh(io); });
    else
      context_->clear(reinterpret_cast<std::byte*>(to), size_ * sizeof(double));
    std::size_t b = 0;
    for (; last ? b < partial_sums_.size() : (i >> b & 1) != 0; ++b)
      MeanKernel::add(*context_, to, partial_sums_[b].data(), size_);
    if (last) return;
    std::swap(sum_, partial_sums_[b]);
    copy(state, before_);
  }
  /// f(a range of the state and its place in the sums).
  template <class F>
  void each(const State& state, double* sums, std::size_t count, const F& f) const {
    for (const StateRange& range : averaged_) {
      const std::size_t size = range.end - range.begin;
      f(StateMeanIo<D>{*context_, state.data() + range.begin, sums, size, count});
      sums += size;
    }
  }

  void copy(const State& to, const State& from) const {
    context_->copy(reinterpret_cast<std::byte*>(to.data()),
                   reinterpret_cast<const std::byte*>(from.data()), from.bytes());
  }

  Context* context_;
  std::span<const StateRange> averaged_;
  bool is_on_;
  std::size_t size_ = 0;
  State before_;
  Sums sum_;
  std::vector<Sums> partial_sums_;  // of slices that wait for others
};

}  // namespace lockstep::detail
