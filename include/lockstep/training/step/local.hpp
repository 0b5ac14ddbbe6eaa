/// \file
/// The update policies ls::LocalSgd and ls::DiLoCo: replicas that train alone for a round of steps.
/// Invariants: between two rounds all replicas hold the same weights, state of layers and outer
/// momentum; within one nothing is exchanged; each has the optimizer's slots of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/concepts/update_policy.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/owned_ranges.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/model/buffer.hpp"
#include "lockstep/training/step/updates.hpp"

namespace lockstep {

namespace detail {

/// The end of a round, in numbers: rate 1 without momentum is the mean of the replicas' weights.
struct OuterStep {
  std::uint64_t steps;    ///< of a round
  double rate, momentum;  ///< of the step that all replicas make with the mean of their changes
};

/// \throws UsageError naming the first invalid option.
[[gnu::cold]] inline void check_outer_step(std::string_view policy, const OuterStep& its) {
  if (its.steps == 0)
    throw UsageError("{}: .steps is 0; set the steps of a round, at least 1", policy);
  if (!(its.rate > 0) || its.rate > std::numeric_limits<double>::max())
    throw UsageError("{}: .outer_rate is {}; it must be above 0 and finite", policy, its.rate);
  if (!(its.momentum >= 0) || its.momentum >= 1)
    throw UsageError("{}: .momentum is {}; it must be at least 0 and below 1", policy,
                     its.momentum);
}

/// One replica's object of the policy P. A step is that of a replica alone: its gradients are the
/// mean over its own part of the batch, and are not exchanged.
template <class D, class P>
class LocalUpdate : public Updates<D> {
  using Base = Updates<D>;
  static constexpr bool is_on_host = HostDevice<D>;
  static_assert(is_on_host,
                "lockstep::LocalSgd, lockstep::DiLoCo: the end of a round reads the weights on the "
                "host, which this device does not use; use Cpu or Reference, or leave out the "
                "policy");

 public:
  using typename Base::T;

  [[gnu::cold]] explicit LocalUpdate(const UpdateSite<D>& site)
      : Base(site, Ranges{{0, site.engine.weights().size()}}),
        device_(&site.device),
        outer_step_(static_cast<const P*>(site.policy)->outer_step()),
        is_plain_(site.replicas == 1 && outer_step_.rate == 1 && outer_step_.momentum == 0),
        accumulates_(site.facts.options.gradient_accumulation_steps > 1),
        updates_in_backward_(site.has_final_gradients && site.facts.is_by_elements &&
                             this->is_by_parts()) {
    check_outer_step(P::name, outer_step_);
    if (site.facts.options.use_ema)
      throw UsageError(
          "{}: .with.use_ema averages the weights of each step, but each replica has its own between "
          "two synchronisations; leave out .use_ema",
          P::name);
    const std::size_t n = site.engine.weights().size();
    trained_ = this->trained();
    anchor_ = Buffer<Context, T>(site.device, is_plain_ ? 0 : n);
    outer_ = Buffer<Context, T>(site.device, outer_step_.momentum > 0 ? n : 0);
  }

  [[gnu::cold]] void set_segments(std::span<const UpdateSegment> segments) {
    Base::set_segments(segments);
    trained_ = this->trained();
  }
  /// Call before each step, which has `examples` of this replica.
  void begin_local_step(bool begins_round, std::size_t examples) {
    has_examples_ = examples > 0;
    if (begins_round && anchor_.size() > 0)
      device_->copy(reinterpret_cast<std::byte*>(anchor_.data()),
                    reinterpret_cast<const std::byte*>(this->weights()), anchor_.bytes());
  }
  void ready(const ReplicaContext<D>&, Slice) const {}
  void finish(const ReplicaContext<D>& replica, Slice last, double* sums, std::size_t n,
              std::size_t ordered) const {
    if (last.count == 0) replica.exchange.finish(this->gradients(), 0, sums, n + ordered);
  }
  /// Without examples the weights stay as they are.
  [[gnu::cold]] void update(const ReplicaContext<D>&, UpdateRule<D> rule, double rate,
                            std::uint64_t step, bool is_applied) {
    if (!has_examples_) {
      if (!accumulates_) return;
      device_->clear(reinterpret_cast<std::byte*>(this->gradients()),
                     this->owned().size() * sizeof(T));
    }
    if (this->begin(step) && !is_applied) this->apply(rule, rate);
    this->end(step);
  }
  /// The exchange of a round: makes the outer step, and replaces sums[0..n) by their sums over the
  /// replicas. `share`: this replica's part of the mean.
  [[gnu::cold]] void end_round(const ReplicaContext<D>& replica, double share, double* sums,
                               std::size_t n) {
    T* const change = this->gradients();
    if (is_plain_) return replica.exchange.finish(change, 0, sums, n);
    T *const w = this->weights(), *const anchor = anchor_.data(), *const outer = outer_.data();
    const double rate = outer_step_.rate, momentum = outer_step_.momentum;
    for (const Slice& part : trained_)
      for (std::size_t i = part.first; i < part.first + part.count; ++i)
        change[i] =
            static_cast<T>(share * (static_cast<double>(anchor[i]) - static_cast<double>(w[i])));
    const std::span<const Slice> parts = trained_.parts();
    for (std::size_t k = parts.size(); k-- > 1;)  // as backward does, from the end
      replica.exchange.post(change + parts[k].first, parts[k].count);
    const Slice last = parts.empty() ? Slice{} : parts[0];
    replica.exchange.finish(change + last.first, last.count, sums, n);
    for (const Slice& part : trained_)
      for (std::size_t i = part.first; i < part.first + part.count; ++i) {
        double d = static_cast<double>(change[i]);
        if (outer != nullptr) {
          outer[i] = static_cast<T>(momentum * static_cast<double>(outer[i]) + d);
          d += momentum * static_cast<double>(outer[i]);
        }
        w[i] = static_cast<T>(static_cast<double>(anchor[i]) - rate * d);
      }
  }
  std::uint64_t steps_of_round() const { return outer_step_.steps; }
  /// Whether `restore_beginning` can set the weights to those at the beginning of a round; one replica
  /// that makes no outer step has no copy of them.
  bool keeps_beginning() const { return anchor_.size() > 0; }
  [[gnu::cold]] void restore_beginning() {
    std::copy_n(anchor_.data(), anchor_.size(), this->weights());
  }

  bool updates_in_backward() const { return updates_in_backward_; }
  static constexpr bool reads_gradients() { return false; }
  void sum_over_owners(const ReplicaContext<D>&, std::span<double>) const {}
  void complete(const ReplicaContext<D>&, T*) const {}
  void overwrite_with_average(const ReplicaContext<D>&) const {}
  static constexpr bool divides_slots = false;
  static constexpr bool makes_rounds = true;
  static constexpr EqualParts must_be_equal() { return {.optimizer = false}; }

  /// Buffers that all replicas have with the same values; `read` and `load` know them after the
  /// optimizer's.
  static std::size_t shared_slots(const P& policy) {
    return policy.outer_step().momentum > 0 ? 1 : 0;
  }
  static constexpr std::string_view shared_slot_name = "outer_momentum";
  std::size_t slot_bytes() const { return Base::slot_bytes() + anchor_.bytes() + outer_.bytes(); }
  [[gnu::cold]] void clear() {
    Base::clear();
    if (outer_.size() > 0)
      device_->clear(reinterpret_cast<std::byte*>(outer_.data()), outer_.bytes());
  }
  [[gnu::cold]] void read(std::size_t slot, T* all) const {
    if (slot < this->slot_buffers().size()) return Base::read(slot, all);
    [[maybe_unused]] const auto scope = device_->scope();
    outer_.download(all);
    device_->synchronize();
  }
  [[gnu::cold]] void load(std::size_t slot, const T* all) const {
    if (slot < this->slot_buffers().size()) return Base::load(slot, all);
    outer_.upload(all);
  }

 private:
  using typename Base::Context;

  Context* device_;
  OuterStep outer_step_;
  bool is_plain_;  // the end of a round changes nothing
  bool accumulates_, updates_in_backward_;
  bool has_examples_ = true;  // in this step
  Ranges trained_;
  Buffer<Context, T> anchor_;   // the weights at the beginning of the round
  Buffer<Context, T> outer_{};  // its momentum; empty without
};

}  // namespace detail

/// The update policy of local SGD: each replica makes `steps` steps alone, with its own part of each
/// batch and the optimizer's slots of its own. Then the weights of all replicas become their mean:
///
///     round   w_i: `steps` updates of replica i, g_i the mean over its own examples     no exchange
///     end     w = w_0 - sum(n_i (w_0 - w_i)) / sum(n_i)                                 one all-reduce
///
/// with w_0 the weights at the beginning of the round and n_i the examples of replica i in it. The
/// same mean is made of the statistics of BatchNormalization. A round also ends with each epoch and,
/// if `fit` stops, within one, so that hooks, evaluation and checkpoints see one model; `fit` calls
/// the hooks of a step after its round. Its loss and metrics are those of all examples of all
/// replicas, each under the weights that its replica had.
///
/// With `.steps = 1` it is ls::Replicated to rounding for `ls::SGD` without momentum, and with
/// momentum, Nesterov's, too, if all replicas have equally many examples in each batch. Adam and the
/// others, clipping by norm, and BatchNormalization under Replicated's batch statistics, which are
/// each replica's own in both, are not linear in the gradient: there the two differ.
///
/// If an exception ends `fit` within a round, weights, statistics and step count of each process
/// become those at its beginning, without an exchange; the optimizer's slots keep what the round has
/// changed. One replica has no copy: its steps stay.
///
/// Memory: one more buffer as large as the weights. A checkpoint has the slots of each replica, and
/// continues with as many. Not with ls::Elastic, steps of the program's own, layers that exchange
/// data within a step, or fp16: these do not compile.
///
/// Source: S. Stich, Local SGD Converges Fast and Communicates Little, 2019; weights n_i: B. McMahan
/// et al., Communication-Efficient Learning of Deep Networks, 2017. PyTorch: PostLocalSGD, which
/// averages after steps 0, H, 2H, ... of the whole training.
/// \throws UsageError when the model is made: `.steps` is 0, the strategy has virtual shards, or the
/// optimizer has `use_ema`.
/// \code
///   #include <lockstep/local_sgd.hpp>
///   ls::Mirrored<ls::Cpu>{.replicas = 4} | ls::LocalSgd{.steps = 16}
/// \endcode
struct LocalSgd {
  std::uint64_t steps = 16;  ///< of a round

  template <class D>
  using Replica = detail::LocalUpdate<D, LocalSgd>;
  static constexpr std::string_view name = "local_sgd";
  detail::OuterStep outer_step() const { return {steps, 1, 0}; }
  /// The name with the options, which all processes of a job compare.
  std::string text() const { return format_text("{}, {} steps", name, steps); }
};

/// The update policy DiLoCo: rounds as those of ls::LocalSgd, at whose end all replicas make an outer
/// step with the mean of their changes, which is SGD with Nesterov's momentum as PyTorch has it:
///
///     d = sum(n_i (w_0 - w_i)) / sum(n_i)        v = momentum v + d        v = 0 at first
///     w = w_0 - outer_rate (d + momentum v)
///
/// The inner optimizer's slots stay with their replicas; v is the same in all. With one replica the
/// outer step is made, too. `.outer_rate = 1, .momentum = 0` is ls::LocalSgd. Rules, limits and
/// errors: those of ls::LocalSgd; also throws if `outer_rate` is not above 0 or `momentum` not in
/// [0, 1). Memory: two more buffers as large as the weights.
///
/// Source: A. Douillard et al., DiLoCo: Distributed Low-Communication Training of Language Models,
/// 2023; defaults as in OpenDiLoCo and torchft.
/// \code
///   ls::MultiWorkerMirrored<ls::Cpu>{} | ls::DiLoCo{.steps = 500}
/// \endcode
struct DiLoCo {
  std::uint64_t steps = 500;  ///< of a round
  double outer_rate = 0.7;
  double momentum = 0.9;

  template <class D>
  using Replica = detail::LocalUpdate<D, DiLoCo>;
  static constexpr std::string_view name = "diloco";
  detail::OuterStep outer_step() const { return {steps, outer_rate, momentum}; }
  /// The name with the options, which all processes of a job compare.
  std::string text() const {
    return format_text("{}, {} steps, outer rate {}, momentum {}", name, steps, outer_rate,
                       momentum);
  }
};

}  // namespace lockstep
