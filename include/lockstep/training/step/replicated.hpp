/// \file
/// The default update policy: each replica holds all slots and makes the whole update. Invariant:
/// the gradients are bit-identical in all replicas, so nothing is exchanged after their sums.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "lockstep/concepts/strategy.hpp"
#include "lockstep/concepts/update_policy.hpp"
#include "lockstep/core/owned_ranges.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/training/step/updates.hpp"

namespace lockstep {

namespace detail {

/// One replica's object of ls::Replicated. If backward's gradients are final and the optimizer
/// needs nothing else, each range is updated within backward.
template <class D>
class ReplicatedUpdate : public Updates<D> {
 public:
  using typename Updates<D>::T;

  [[gnu::cold]] explicit ReplicatedUpdate(const UpdateSite<D>& site)
      : Updates<D>(site, Ranges{{0, site.engine.weights().size()}}),
        updates_in_backward_(site.has_final_gradients && site.facts.is_by_elements &&
                             this->is_by_parts()) {}

  void ready(const ReplicaContext<D>& replica, Slice range) {
    replica.exchange.post(this->gradients() + range.first, range.count);
  }
  void finish(const ReplicaContext<D>& replica, Slice last, double* sums, std::size_t n,
              std::size_t ordered) {
    replica.exchange.finish(this->gradients() + last.first, last.count, sums, n + ordered);
  }
  [[gnu::cold]] void update(const ReplicaContext<D>&, UpdateRule<D> rule, double rate,
                            std::uint64_t step, bool is_applied) {
    if (this->begin(step) && !is_applied) this->apply(rule, rate);
    this->end(step);
  }
  bool updates_in_backward() const { return updates_in_backward_; }
  void sum_over_owners(const ReplicaContext<D>&, std::span<double>) const {}
  void complete(const ReplicaContext<D>&, T*) const {}
  void overwrite_with_average(const ReplicaContext<D>&) { Updates<D>::overwrite_with_average(); }
  static constexpr bool divides_slots = false;
  static constexpr EqualParts must_be_equal() { return {}; }

 private:
  bool updates_in_backward_;
};

}  // namespace detail

/// The default update policy of strategies. Each range of gradients is all-reduced while
/// backward continues; then each replica updates all weights.
struct Replicated {
  template <class D>
  using Replica = detail::ReplicatedUpdate<D>;
  static constexpr std::string_view name = "replicated";
};

namespace detail {

template <class S>
struct UpdatePolicyOf {
  using type = Replicated;
};
template <class S>
  requires requires { typename S::update_policy; }
struct UpdatePolicyOf<S> {
  using Given = typename S::update_policy;
  using D = typename S::device;
  static constexpr bool is_complete = [] {
    if constexpr (UpdatePolicy<Given, D>)
      return std::derived_from<typename Given::template Replica<D>, Updates<D>>;
    else
      return false;
  }();
  static_assert(
      is_complete,
      "lockstep::Model: the strategy's update_policy lacks a member for its device, or its "
      "Replica is not derived from detail::Updates; see concepts/update_policy.hpp");
  using type = std::conditional_t<is_complete, Given, Replicated>;  // so that one error is enough
};
/// The object that a strategy's policy makes for each replica.
template <class S>
using UpdateOf = typename UpdatePolicyOf<S>::type::template Replica<typename S::device>;

}  // namespace detail
}  // namespace lockstep
