/// \file
/// The update policy of ParameterServer: the servers own the weights, the workers own none.
/// Invariants: a server's sum of gradients has the bits of an all-reduce among the workers alone;
/// after a step all processes hold the weights of the next one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/concepts/strategy.hpp"
#include "lockstep/concepts/update_policy.hpp"
#include "lockstep/core/owned_ranges.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/optimizers/update_options.hpp"
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
    if (last.count > 0) replica.gradients.reduce_scatter(this->gradients(), ranges_, workers_);
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
    const auto sum = [&](std::span<double> values) { sum_over_owners(replica, values); };
    if (this->begin(step, sum)) this->apply(rule, rate);
    this->end(step);
    complete(replica, this->weights());
  }
  static constexpr bool updates_in_backward() { return false; }
  /// Whether the sum has this replica's gradients.
  bool reads_gradients() const { return reads_gradients_; }
  void sum_over_owners(const ReplicaContext<D>& replica, std::span<double> values) const {
    replica.host.all_reduce(values.data(), values.size());
  }
  void complete(const ReplicaContext<D>& replica, T* all) const {
    replica.gradients.all_gather(reinterpret_cast<std::byte*>(all), bytes_);
  }
  void overwrite_with_average(const ReplicaContext<D>& replica) {
    Base::overwrite_with_average();
    complete(replica, this->weights());
  }
  static constexpr bool divides_slots = true;
  static constexpr EqualParts must_be_equal() { return {.optimizer = false}; }

 protected:
  /// The weights of each replica.
  std::span<const Slice> ranges() const { return ranges_; }

 private:
  [[gnu::cold]] ServedUpdate(const UpdateSite<D>& site, std::vector<Slice> ranges)
      : Base(site, Ranges{ranges[site.rank]}),
        ranges_(std::move(ranges)),
        state_(site.replicas),
        first_owner_(site.roles.owners.first),
        workers_(site.roles.computing),
        reads_gradients_(workers_.contains(site.rank)) {
    for (const Slice& range : ranges_)
      bytes_.push_back({range.first * sizeof(T), range.count * sizeof(T)});
  }

  /// The range of each replica, divided evenly among the owners. Parameters whose norms or whole
  /// values an update needs are not divided; otherwise shares are whole blocks, so that a kernel
  /// updates each element as it would without a division.
  [[gnu::cold]] static std::vector<Slice> ranges_of(const UpdateSite<D>& site) {
    constexpr std::size_t block = 64;
    const std::size_t n = site.engine.weights().size();
    const UpdateOptions& options = site.facts.options;
    const bool divides =
        site.facts.is_by_elements && options.clipnorm <= 0 && options.global_clipnorm <= 0;
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

  std::vector<Slice> ranges_, bytes_;  // of each replica, in elements and in bytes
  std::vector<Slice> state_;           // the part of each replica of the sums of layers' states
  std::size_t first_owner_;
  Slice workers_;
  bool reads_gradients_;
};

}  // namespace detail

/// The update policy of ls::ParameterServer.
struct Served {
  template <class D>
  using Replica = detail::ServedUpdate<D>;
};

}  // namespace lockstep
