/// \file
/// The interface of update policies: what happens between "backward has finished a range of
/// gradients" and "the weights of the next step are there". Invariants: all replicas make the same
/// calls in the same order; nothing outside of a policy knows which one it is, only what it owns.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/owned_ranges.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep {

/// The parts of a model that have the same bits in all replicas between two steps, and that a
/// comparison of the replicas therefore compares.
struct EqualParts {
  bool weights = true;    ///< and the state of layers
  bool optimizer = true;  ///< the optimizer's buffers
};

/// The optimizer's update of one step, for a part of the weights: one UpdateIo per segment, at least
/// one, all with one multiplier of the rate.
template <class D>
using UpdateRule = FunctionRef<void(std::span<const UpdateIo<D>>)>;

/// The object that a policy makes for each replica. It is used in the replica's own thread, in the
/// device's scope, and is constructed from a detail::UpdateSite<D>.
///
///     backward ── ready(range) ── ready(range) ── finish(last, sums) ── update(rule) ── next step
///
/// - `owned()`: the weights that this replica updates, and whose slots it holds.
/// - `ready(replica, range)`: backward has finished the gradients of this range, in this replica
///   and for all its slices. Does not block.
/// - `finish(replica, last, sums, n, ordered)`: the same for the last range of the step, which begins
///   at 0 unless the first weights are held. Returns when the gradients of all owned weights, and
///   sums[0..n + ordered), hold their sums over the replicas; the last `ordered` ones are added in the order of the gradients, the others
///   have one value that is not zero. An empty range: only the sums are exchanged, without a step.
/// - `update(replica, rule, rate, step, is_applied)`: calls `rule` for all owned weights, unless
///   backward has. When it returns, all weights are those of the next step. `step` counts from 1.
/// - `updates_in_backward()`: backward may apply the rule to each range itself.
/// - `sum_over_owners(replica, values)`: replaces numbers on the host, each about owned gradients,
///   by their sums over the replicas that own other weights.
/// - `divides_slots`: whether replicas may hold parts of a slot. `complete(replica, values)`, which
///   is called only then: `values` is a host copy of all elements of a slot, with this replica's own
///   in their places; fills in the others'. Collective.
/// - `overwrite_with_average(replica)`: copies the moving averages over the weights of this
/// replica.
/// - `must_be_equal()`: the same in all replicas.
/// - with ls::Elastic, if `divides_slots`: `is_within_update()`, `has_updated()`, `read_before(i, all)`
///   and `read_updated_weights(all)`; see detail::RecoverableUpdate, which adds them to a policy that
///   has `update_owned`, the part of `update` before the weights are sent.
/// - optional `reads_gradients()`: if false, an empty slice of this replica need not be computed.
/// - optional `observe(listener)`: reports operations that are not the exchange's, until it gets null.
/// - optional `makes_rounds`: if true, replicas make steps alone, in which only
///   `begin_local_step(begins_round, examples)` and `update` matter, and meet after each
///   `steps_of_round()` of them, at the end of an epoch and before a stop: `end_round(replica, share,
///   sums, n)`, with sums as in `finish`, after which all have the same weights. If an exception
///   interrupts a round, `restore_beginning()` sets the weights to those before it, if
///   `keeps_beginning()`, which is the same in all replicas. Each has whole slots
///   of its own, which `must_be_equal()` leaves out, then `shared_slots(policy)` others that are the
///   same in all.
/// - optional `begin_step(step)`: called before the backward pass of a step, counted from 1.
/// - see KeepsGradients.
template <class U, class D>
concept UpdatesReplica =
    requires(U& u, const U& kept, const ReplicaContext<D>& replica, Slice range, std::size_t n,
             double* sums, UpdateRule<D> rule, double rate, std::uint64_t step, bool is_applied,
             std::span<double> values, typename D::real* all) {
      { kept.owned() } -> std::same_as<const Ranges&>;
      { u.ready(replica, range) } -> std::same_as<void>;
      { u.finish(replica, range, sums, n, n) } -> std::same_as<void>;
      { u.update(replica, rule, rate, step, is_applied) } -> std::same_as<void>;
      { kept.updates_in_backward() } -> std::same_as<bool>;
      { u.sum_over_owners(replica, values) } -> std::same_as<void>;
      { U::divides_slots } -> std::convertible_to<bool>;
      { kept.complete(replica, all) } -> std::same_as<void>;
      { u.overwrite_with_average(replica) } -> std::same_as<void>;
      { kept.must_be_equal() } -> std::same_as<EqualParts>;
    };

/// Whether the objects of a policy make steps alone, in rounds.
template <class U>
inline constexpr bool makes_rounds = requires { requires U::makes_rounds; };
/// The object of a policy whose replicas keep gradients that they have not sent, in a checkpoint, too:
/// `kept()`, a buffer of the device as large as the weights or empty, different in each replica;
/// `factors()`, another one, the same in all; `factors_layout()`, a number above 0 that identifies its layout.
/// Both are of the last step that `update` has ended. `set_kept(kept, factors)` sets both from the host.
template <class U>
concept KeepsGradients = requires(const U& u) {
  u.kept();
  u.factors();
  { u.factors_layout() } -> std::same_as<std::size_t>;
};

/// A policy, which a strategy names as its `update_policy`; without one it is ls::Replicated.
/// `Replica<D>` is the type of the object of each replica. Optional: `name`; `text()`, the name with
/// the options, which all processes of a job compare; `depends_on_replicas`, if virtual shards cannot
/// keep their bits.
template <class P, class D>
concept UpdatePolicy = UpdatesReplica<typename P::template Replica<D>, D>;

}  // namespace lockstep
