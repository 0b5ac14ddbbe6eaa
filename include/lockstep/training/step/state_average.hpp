/// \file
/// Averages the state that training changes, such as BatchNormalization's running statistics, over
/// the slices of a batch. Invariants: all slices of a step start from the same state; after a step,
/// even a failed one, all replicas hold the same state; no function waits for the device.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/state_mean.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/model/buffer.hpp"
#include "lockstep/model/plan.hpp"

namespace lockstep::detail {

/// Layout of a model's non-trainable state.
struct TrainedState {
  std::size_t size;                      ///< elements, without those of frozen layers, which follow
  bool changes;                          ///< whether a training step writes it
  std::span<const StateRange> averaged;  ///< ranges that depend on a slice's own examples
  std::size_t averaged_size;             ///< elements of these ranges
};

/// The state after a step is the mean of the slices' states, weighted by their numbers of examples
/// n_i, in double; empty slices do not count. For running statistics this means, up to rounding,
///
///     running = m running + (1 - m) sum(n_i statistic_i) / sum(n_i)
///
/// A replica's slices are added in the same binary tree as their gradients, and the collective adds
/// the replicas' sums:
///
///     before_ --+-- slice 0 --> state 0 * n_0 --+
///               +-- slice 1 --> state 1 * n_1 --+-- sum_ --> exchange --> / sum(n_i) --> state
///               +-- slice 2 --> state 2 * n_2 --+
template <class D>
class StateAverage {
 public:
  using T = typename D::real;
  using Context = typename D::Context;
  using State = Buffer<Context, T>;
  using Sums = Buffer<Context, double>;

  /// `mine`: slices of this replica, out of `slices` per batch. With a single slice per batch the
  /// state needs no averaging, and only a copy for Rollback is allocated.
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

  /// Whether training changes the model's state.
  bool is_on() const { return is_on_; }

  /// Elements that the exchange sums; 0 with a single slice.
  std::size_t size() const { return size_; }

  /// Scope guard of a step: restores the state if the step ends without `commit`.
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
        } catch (...) {  // the device is lost; the exception in flight names the cause
        }
    }
    void commit() { is_committed_ = true; }

   private:
    StateAverage* average_;
    const State* state_;
    bool is_committed_ = false;
  };

  /// The state is that before a step that another replica has made.
  void keep(const State& state) const {
    if (is_on_) copy(before_, state);
  }
  /// Sets the state to that before the last step.
  void undo(const State& state) const {
    if (is_on_) copy(state, before_);
  }

  /// Ranges that stay as they are: a mean of equal numbers may be rounded.
  [[gnu::cold]] void hold(std::vector<Slice> ranges) { held_ = std::move(ranges); }

  /// Adds the state after slice i, of `count` examples. The replica's last slice writes the sum of
  /// all its slices to `sums`; the others restore the state for the next slice.
  void add(std::size_t i, std::size_t count, bool last, const State& state, double* sums) {
    if constexpr (can)
      if (size_ > 0) add_slice(i, count, last, state, sums);
  }

  /// Sets the state to `sums` / `count`: the sums over all replicas, whose slices have `count`
  /// examples altogether.
  void write_mean(double* sums, std::size_t count, const State& state) {
    if constexpr (can)
      if (size_ > 0) {
        each(state, sums, count, [](const StateMeanIo<D>& io) { MeanKernel::write_mean(io); });
        for (const Slice& range : held_)
          context_->copy(reinterpret_cast<std::byte*>(state.data() + range.first),
                         reinterpret_cast<const std::byte*>(before_.data() + range.first),
                         range.count * sizeof(T));
      }
  }

 private:
  using MeanKernel = Kernel<StateMean, D>;
  static constexpr bool can = HasKernel<StateMean, D>;

  void add_slice(std::size_t i, std::size_t count, bool last, const State& state, double* sums) {
    double* const to = last ? sums : sum_.data();
    // The state after an empty slice may be NaN, so it cannot be multiplied with 0.
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
  /// Calls f for each averaged range, with its part of `sums`.
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
                   reinterpret_cast<const std::byte*>(from.data()), before_.bytes());
  }

  Context* context_;
  std::span<const StateRange> averaged_;
  std::vector<Slice> held_{};
  bool is_on_;
  std::size_t size_ = 0;
  State before_;                    // the state before the step
  Sums sum_;                        // the current slice's
  std::vector<Sums> partial_sums_;  // 2^b slices in number b, as DeviceReplica's partial gradients
};

}  // namespace lockstep::detail
