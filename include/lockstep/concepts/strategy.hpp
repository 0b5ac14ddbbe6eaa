/// \file
/// The interface of strategies. Invariants: a strategy is a copyable value; its Session owns the
/// threads and groups of the replicas; every replica runs every body, even if it has no examples.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/concepts/collective.hpp"
#include "lockstep/concepts/copyable.hpp"
#include "lockstep/concepts/device.hpp"
#include "lockstep/core/phase.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep {

/// The argument of a body of `Session::each`; used in the replica's own thread.
template <class D>
struct ReplicaContext {
  std::size_t local;    ///< index among the replicas of this process
  std::size_t rank;     ///< index among the replicas of the whole job
  CollectiveRef group;  ///< all replicas of the job; the channel of the layers
  GradientExchange<typename D::real> exchange;  ///< all replicas of the job; a separate channel for
                                                ///< gradients
  typename D::Context& device;
  CollectiveRef host = group;  ///< channel of the same group for host memory
  /// The channel of `exchange`; what lies in its allocator's memory may be exchanged in place. Call it
  /// while no range is pending.
  CollectiveRef gradients = group;
};

/// Settings that must be equal in all processes of a job, as (name, value) pairs. The name of a
/// field about the data ends with "examples".
using Signature = std::vector<std::pair<std::string, std::string>>;

/// The ranks of the replicas that compute gradients, and of those that update weights. A session may
/// have `roles()`; without, all replicas do both. The others have an empty part of each batch.
struct ReplicaRoles {
  Slice computing, owners;
  std::size_t copies = 1;   ///< owners of each range, from 1 to owners.count
  bool may_change = false;  ///< the job goes on with other replicas if some are lost within a step
};

namespace detail {
/// The remedy for a field of a Signature that differs between processes.
constexpr std::string_view remedy_of_difference(std::string_view field) {
  return field.ends_with("examples")
             ? "each worker must read the whole data set, in the same order: lockstep divides the "
               "batches, so do not split the data by rank, and sort lists of files"
             : "start all ranks with the same program, options and data";
}
}  // namespace detail

/// An opened strategy.
///
/// - `each(body)`: runs body(ReplicaContext) once in the thread of each local replica and returns
///   when all have finished. An error in one replica aborts the exchanges of all; the first error
///   is rethrown, and `each` may be called again.
/// - `local_replicas()`, `replicas()` (of the whole job), `first_replica()` (rank of local replica
///   0).
/// - `virtual_shards()`: number of slices of a batch, independent of the number of replicas; 0: one
///   slice per replica.
/// - `workers()`, `rank()`: number of processes in the job, and the rank of this one.
/// - `is_chief()`: whether this process reports progress and writes files.
/// - `agree(part, fields)`: returns if all processes of the job pass the same fields; otherwise
///   throws in all of them.
/// - `note(step, phase)`: records what this process does now; cheap enough for every step.
/// - `end_epoch(epoch)`: called by all processes after an epoch, counted from 0.
/// - `fail(what)`: notifies the other processes that this one stopped with an error.
template <class S, class D>
concept StrategySession =
    std::move_constructible<S> && requires(S& s, void (*body)(ReplicaContext<D>)) {
      s.each(body);
      { s.local_replicas() } -> std::same_as<std::size_t>;
      { s.replicas() } -> std::same_as<std::size_t>;
      { s.first_replica() } -> std::same_as<std::size_t>;
      { s.virtual_shards() } -> std::same_as<std::size_t>;
      { s.workers() } -> std::same_as<std::size_t>;
      { s.rank() } -> std::same_as<std::size_t>;
      { s.is_chief() } -> std::same_as<bool>;
      s.agree(std::string_view(), Signature());
      s.note(std::uint64_t{}, Phase{});
      s.end_epoch(0);
      s.fail(std::string());
    };

/// A session whose job may go on with other processes after a loss; models with one need
/// <lockstep/elastic.hpp>. A generation is the time between
/// two changes of its members:
///
///     generation 0 ── a worker is lost, or waits to join ── reform(why), form() ── generation 1
///
/// - `is_elastic()`: false: a loss ends the job, and no other function of this list is called.
/// - `has_newcomers()`: a process waits to join. `must_reform()`: a peer has ended the generation.
///   Both are cheap enough for every step.
/// - `reform(why, stop)`: leaves the generation at once and agrees with the survivors on the next
///   one. No exchange is possible until `form()` has returned. \throws if the job cannot go on, or
///   if it does not within seconds after `stop` has been requested.
/// - `form()`: connects the members of the generation. \throws PeerLost if one of them is lost; then
///   `reform` may be called again.
/// - `form_alone(error)`: after `reform` has thrown: connects this process with itself, so that its
///   model can be read. Once `end()` is called, `each` throws `error`.
/// - `generation()`: counts from 0. `has_new_members()`: whether processes have joined in this
///   generation, except in the first; `is_new_member()`: whether this process has. All three may be
///   called between `reform` and `form`.
/// - `reject_newcomers()`: the next generation is formed without them.
/// - `change()`: the last change of the members, for the log.
/// - `lost_owners()`: the PeerLost of the replicas that owned weights and were lost since
///   `has_recovered()` was called last. Both are optional if all replicas own all weights.
template <class S>
concept ElasticSession = S::can_reform && requires(S& s, std::exception_ptr e) {
  { s.is_elastic() } -> std::same_as<bool>;
  { s.has_newcomers() } -> std::same_as<bool>;
  { s.must_reform() } -> std::same_as<bool>;
  s.reform(std::string(), std::stop_token());
  s.form();
  s.form_alone(e);
  s.end();
  { s.has_new_members() } -> std::same_as<bool>;
  { s.is_new_member() } -> std::same_as<bool>;
  { s.generation() } -> std::same_as<std::uint64_t>;
  s.reject_newcomers();
  { s.change() } -> std::same_as<std::string>;
};

/// Base class of sessions of a single process, which has no peers.
struct SessionOfOneProcess {
  static std::size_t workers() { return 1; }
  static std::size_t rank() { return 0; }
  static bool is_chief() { return true; }
  static void agree(std::string_view, const Signature&) {}
  static void note(std::uint64_t, Phase) {}
  static void end_epoch(int) {}
  static void fail(const std::string&) {}
};

/// Base class of sessions of a single replica; code that compares or exchanges is not instantiated.
struct SessionOfOneReplica : SessionOfOneProcess {
  static std::size_t local_replicas() { return 1; }
  static std::size_t replicas() { return 1; }
  static std::size_t first_replica() { return 0; }
};

/// A strategy: `device`, `name`, and `open()`.
template <class S>
concept Strategy = Copyable<S> && requires(const S& s) {
  typename S::device;
  requires Device<typename S::device>;
  { S::name } -> std::convertible_to<std::string_view>;
  // A type requirement on the return type of open() would be shorter, but nvcc 13 then does not see
  // the members of the class.
  requires StrategySession<decltype(s.open()), typename S::device>;
};

}  // namespace lockstep
