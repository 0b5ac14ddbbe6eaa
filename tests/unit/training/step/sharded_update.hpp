/// \file
/// An update policy for tests, as the proof that the seam holds one: each replica owns a share of
/// the optimizer's buffers (ZeRO's first stage), in one process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/concepts/strategy.hpp"
#include "lockstep/concepts/update_policy.hpp"
#include "lockstep/core/owned_ranges.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/training/step/updates.hpp"

namespace sharded {

namespace ls = lockstep;

template <class D>
class Update : public ls::detail::Updates<D> {
  using Base = ls::detail::Updates<D>;

 public:
  using typename Base::T;

  explicit Update(const ls::detail::UpdateSite<D>& site) : Update(site, shares(site)) {}

  void ready(const ls::ReplicaContext<D>&, ls::Slice) {}
  void finish(const ls::ReplicaContext<D>& replica, ls::Slice last, double* sums, std::size_t n,
              std::size_t ordered) {
    if (last.count > 0) replica.group.reduce_scatter(this->gradients(), shares_);
    replica.exchange.finish(this->gradients(), 0, sums, n + ordered);
  }
  void update(const ls::ReplicaContext<D>& replica, ls::UpdateRule<D> rule, double rate,
              std::uint64_t step, bool) {
    const auto sum = [&](std::span<double> values) { sum_over_owners(replica, values); };
    if (this->begin(step, sum)) this->apply(rule, rate);
    this->end(step);
    complete(replica, this->weights());
  }
  static constexpr bool updates_in_backward() { return false; }
  void sum_over_owners(const ls::ReplicaContext<D>& replica, std::span<double> values) const {
    replica.host.all_reduce(values.data(), values.size());
  }
  void complete(const ls::ReplicaContext<D>& replica, T* all) const {
    replica.group.all_gather(reinterpret_cast<std::byte*>(all), bytes_);
  }
  void overwrite_with_average(const ls::ReplicaContext<D>& replica) {
    Base::overwrite_with_average();
    complete(replica, this->weights());
  }
  static constexpr bool divides_slots = true;
  static constexpr ls::EqualParts must_be_equal() { return {.optimizer = false}; }

 private:
  Update(const ls::detail::UpdateSite<D>& site, std::vector<ls::Slice> shares)
      : Base(site, ls::Ranges{shares[site.rank]}), shares_(std::move(shares)) {
    for (const ls::Slice& share : shares_)
      bytes_.push_back({share.first * sizeof(T), share.count * sizeof(T)});
  }
  /// Segments are not divided, unless there is only one, that is, no update needs whole parameters.
  static std::vector<ls::Slice> shares(const ls::detail::UpdateSite<D>& site) {
    std::vector<ls::Slice> units;
    if (site.facts.segments.size() > 1)
      for (const ls::detail::UpdateSegment& s : site.facts.segments)
        units.push_back({s.begin, s.end - s.begin});
    return ls::shares_of(site.engine.weights().size(), site.replicas, units);
  }

  std::vector<ls::Slice> shares_, bytes_;
};

struct Policy {
  template <class D>
  using Replica = Update<D>;
};

/// A strategy with this policy.
template <class S>
struct Sharded : S {
  using update_policy = Policy;
};

}  // namespace sharded
