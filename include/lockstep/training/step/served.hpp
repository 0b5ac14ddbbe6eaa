/// \file
/// The update policy of ParameterServer: the servers own the weights, the workers own none.
/// Invariants: a server's sum of gradients has the bits of an all-reduce among the workers alone;
/// after a step all processes hold the weights of the next one; all owners of a range have the same
/// bits in it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/concepts/collective.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/concepts/update_policy.hpp"
#include "lockstep/core/owned_ranges.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/optimizers/update_options.hpp"
#include "lockstep/training/step/balanced_shares.hpp"
#include "lockstep/training/step/share_units.hpp"
#include "lockstep/training/step/updates.hpp"

namespace lockstep {

namespace detail {

/// One replica's object of ls::Served.
template <class D>
class ServedUpdate : public Updates<D> {
  using Base = Updates<D>;

 public:
  using typename Base::T;

  [[gnu::cold]] explicit ServedUpdate(const UpdateSite<D>& site)
      : ServedUpdate(site, ranges_of(site)) {}

  void ready(const ReplicaContext<D>&, Slice) {}
  /// The push. `last` is empty if there is no step.
  void finish(const ReplicaContext<D>& replica, Slice last, double* sums, std::size_t n,
              std::size_t ordered) {
    if (last.count > 0) {
      const ExchangeOperation operation(listener_, "push", push_bytes_);
      each_round([&](std::span<const Slice> round) {
        replica.gradients.reduce_scatter(this->gradients(), round, workers_);
      });
      for (const std::vector<Slice>& copies : copies_)
        replica.gradients.reduce_scatter(this->gradients(), copies, workers_);
    }
    replica.exchange.finish(this->gradients(), 0, sums, n);
    if (ordered == 0) return;
    // All processes would be added in another order than the workers.
    state_[first_owner_] = {0, ordered};
    replica.gradients.reduce_scatter(sums + n, state_, workers_);
    state_[first_owner_].count *= sizeof(double);
    replica.gradients.all_gather(reinterpret_cast<std::byte*>(sums + n), state_);
  }
  /// The servers' updates and the pull.
  [[gnu::cold]] void update(const ReplicaContext<D>& replica, UpdateRule<D> rule, double rate,
                            std::uint64_t step, bool) {
    update_owned(replica, rule, rate, step);
    pull(replica);
  }
  /// The update of a step in a phase: nothing else is exchanged than the numbers that `sum` adds over
  /// the owners. `parts`: the only weights that the update changes; none: it may change all owned ones.
  [[gnu::cold]] void update_alone(UpdateRule<D> rule, double rate, std::uint64_t step,
                                  typename Base::SumOverOwners sum, std::span<const Slice> parts) {
    if (!parts.empty() && this->is_by_parts()) {
      for (const Slice& part : parts) this->apply_to(part, rule, rate);
      return this->end(step);
    }
    const auto sum_once = [&](std::span<double> values) {
      if (!clips_together_) return;
      keep_own(values);
      sum(values);
    };
    if (this->begin(step, sum_once)) this->apply(rule, rate);
    this->end(step);
  }
  /// The weights that each replica sends, in elements. Those of ls::Served are one range each; others
  /// may have several rounds of ranges, one after the other.
  std::span<const Slice> ranges() const { return ranges_; }
  /// Those that it updates.
  Ranges owned_by(std::size_t replica) const {
    return owned_of(ranges_, copies_, replica, replicas_);
  }
  static constexpr bool updates_in_backward() { return false; }
  /// Whether the sum has this replica's gradients.
  bool reads_gradients() const { return reads_gradients_; }
  void sum_over_owners(const ReplicaContext<D>& replica, std::span<double> values) const {
    replica.host.all_reduce(values.data(), values.size());
  }
  void complete(const ReplicaContext<D>& replica, T* all) const {
    for (const auto& [first, ranges] : shared_)
      replica.gradients.all_gather(reinterpret_cast<std::byte*>(all + first), ranges);
  }
  void overwrite_with_average(const ReplicaContext<D>& replica) {
    Base::overwrite_with_average();
    pull(replica);
  }
  /// Reports each push and pull until it gets null.
  void observe(ExchangeListener* listener) { listener_ = listener; }
  static constexpr bool divides_slots = true;
  static constexpr EqualParts must_be_equal() { return {.optimizer = false}; }

 protected:
  /// `ranges`: the weights of each replica, without the copies that it has of others', in one or
  /// several rounds.
  [[gnu::cold]] ServedUpdate(const UpdateSite<D>& site, std::vector<Slice> ranges)
      : Base(site, owned_of(ranges, copies_of(site, ranges), site.rank, site.replicas)),
        replicas_(site.replicas),
        ranges_(std::move(ranges)),
        copies_(copies_of(site, ranges_)),
        own_(owned_of(ranges_, {}, site.rank, site.replicas)),
        state_(site.replicas),
        first_owner_(site.roles.owners.first),
        workers_(site.roles.computing),
        reads_gradients_(workers_.contains(site.rank)),
        clips_together_(site.facts.options.clips_by_norm() && site.facts.options.clipnorm <= 0) {
    const Slice whole{0, site.engine.weights().size()};
    for (const Slice& part : site.shared.empty() ? std::span(&whole, 1) : site.shared) {
      const std::size_t first = part.first;
      each_round([&](std::span<const Slice> round) {
        std::vector<Slice>& of_each = shared_.emplace_back(first, std::vector<Slice>()).second;
        for (const Slice& range : round) {
          const std::size_t begin = std::max(range.first, first);
          const std::size_t end = std::min(range.first + range.count, part.first + part.count);
          of_each.push_back(begin < end
                                ? Slice{(begin - first) * sizeof(T), (end - begin) * sizeof(T)}
                                : Slice{});
        }
      });
    }
    const std::size_t all = whole.count * sizeof(T), own = own_.size() * sizeof(T);
    push_bytes_ = reads_gradients_ ? all : own * workers_.count;
    pull_bytes_ = site.roles.owners.contains(site.rank) ? own * (site.replicas - 1) : all;
  }
  /// Ranges of equal bytes of the optimizer's buffers, for owners that may have several each.
  [[gnu::cold]] static std::vector<Slice> balanced_ranges_of(const UpdateSite<D>& site) {
    if (divides_parameters(site)) return ranges_of(site);
    std::vector<Ranges> shares(site.replicas);
    const Slice owners = site.roles.owners;
    std::vector<Ranges> of_owners = balanced_shares(share_units(site.facts), owners.count, block);
    for (std::size_t i = 0; i < owners.count; ++i)
      shares[owners.first + i] = std::move(of_owners[i]);
    return rounds_of(shares);
  }
  /// Updates the owned weights, which the other replicas do not have yet.
  [[gnu::cold]] void update_owned(const ReplicaContext<D>& replica, UpdateRule<D> rule, double rate,
                                  std::uint64_t step) {
    const auto sum = [&](std::span<double> values) {
      keep_own(values);
      sum_over_owners(replica, values);
    };
    if (this->begin(step, sum)) this->apply(rule, rate);
    this->end(step);
  }

 private:
  /// Clears the numbers of parameters that another owner counts.
  void keep_own(std::span<double> values) const {
    if (copies_.empty()) return;
    const std::span<const UpdateSegment> segments = this->segments();
    for (std::size_t i = 0; i < segments.size(); ++i)
      if (std::none_of(own_.begin(), own_.end(),
                       [&](const Slice& part) { return part.contains(segments[i].begin); }))
        values[i] = 0;
  }
  void pull(const ReplicaContext<D>& replica) const {
    const ExchangeOperation operation(listener_, "pull", pull_bytes_);
    complete(replica, this->weights());
  }
  /// Calls f(round) for the ranges of each round.
  template <class F>
  void each_round(const F& f) const {
    for (std::span<const Slice> rest = ranges_; !rest.empty(); rest = rest.subspan(replicas_))
      f(rest.first(replicas_));
  }
  /// The ranges of each replica if owner i + k also owns those of owner i. The ranges of a
  /// reduce-scatter ascend, so that the owners after the wrap get theirs in a second one.
  [[gnu::cold]] static std::vector<std::vector<Slice>> copies_of(const UpdateSite<D>& site,
                                                                 const std::vector<Slice>& ranges) {
    const Slice owners = site.roles.owners;
    std::vector<std::vector<Slice>> all;
    for (std::size_t k = 1; k < site.roles.copies; ++k)
      for (std::size_t round = 0; round < ranges.size(); round += site.replicas) {
        std::vector<Slice> ascending(site.replicas), wrapped(site.replicas);
        for (std::size_t i = 0; i < owners.count; ++i) {
          const bool wraps = i + k >= owners.count;
          const std::size_t by = owners.first + (wraps ? i + k - owners.count : i + k);
          (wraps ? wrapped : ascending)[by] = ranges[round + owners.first + i];
        }
        all.push_back(std::move(ascending));
        all.push_back(std::move(wrapped));
      }
    return all;
  }
  /// All that a replica updates.
  [[gnu::cold]] static Ranges owned_of(const std::vector<Slice>& ranges,
                                       const std::vector<std::vector<Slice>>& copies,
                                       std::size_t replica, std::size_t replicas) {
    std::vector<Slice> all;
    for (std::size_t i = replica; i < ranges.size(); i += replicas) all.push_back(ranges[i]);
    for (const std::vector<Slice>& of_each : copies) all.push_back(of_each[replica]);
    return union_of(all);
  }
  static constexpr std::size_t block = 64;  // of a share, in elements
  /// Whether an update needs neither norms nor whole values of parameters, so that shares are blocks,
  /// in which a kernel updates each element as it would without a division.
  static bool divides_parameters(const UpdateSite<D>& site) {
    return site.facts.is_by_elements && !site.facts.options.clips_by_norm();
  }
  /// The range of each replica, divided evenly among the owners, also within parameters if that is
  /// possible.
  [[gnu::cold]] static std::vector<Slice> ranges_of(const UpdateSite<D>& site) {
    const std::size_t n = site.engine.weights().size();
    const bool divides = divides_parameters(site);
    std::vector<Slice> units;
    for (const UpdateSegment& s : site.facts.segments) units.push_back({s.begin, s.end - s.begin});
    const Slice owners = site.roles.owners;
    const std::vector<Slice> shares = divides ? shares_of((n + block - 1) / block, owners.count)
                                              : shares_of(n, owners.count, units);
    std::vector<Slice> ranges(site.replicas);
    for (std::size_t i = 0; i < owners.count; ++i) {
      Slice& range = ranges[owners.first + i] = shares[i];
      if (!divides) continue;
      range.first = std::min(range.first * block, n);
      range.count = std::min(range.count * block, n - range.first);
    }
    return ranges;
  }

  std::size_t replicas_;
  std::vector<Slice> ranges_;  // of each replica, in one or several rounds
  /// Weights that all have, from an element on: the bytes that each replica has of them.
  std::vector<std::pair<std::size_t, std::vector<Slice>>> shared_;
  std::vector<std::vector<Slice>> copies_;  // the same of ranges that are another owner's, too
  Ranges own_;                              // of which this replica sends the weights
  std::vector<Slice> state_;  // the part of each replica of the sums of layers' states
  std::size_t first_owner_;
  Slice workers_;
  bool reads_gradients_;
  bool clips_together_;  // by a norm of several parameters
  ExchangeListener* listener_ = nullptr;
  std::size_t push_bytes_, pull_bytes_;  // that this replica sends or receives
};

}  // namespace detail

/// The update policy of ls::ParameterServer.
struct Served {
  template <class D>
  using Replica = detail::ServedUpdate<D>;
  static constexpr std::string_view name = "parameter_server";
};

}  // namespace lockstep
