/// \file
/// What a strategy is. Invariants: a strategy is a copyable value; its Session owns the replicas'
/// threads and groups; every replica runs every body, also with no example.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/concepts/collective.hpp"
#include "lockstep/concepts/copyable.hpp"
#include "lockstep/concepts/device.hpp"
#include "lockstep/core/phase.hpp"

namespace lockstep {

/// What `Session::each` hands to its body, in the replica's own thread.
template <class D>
struct ReplicaContext {
  std::size_t local;    ///< index among this process' replicas
  std::size_t rank;     ///< index among all replicas of the job
  CollectiveRef group;  ///< all replicas of the job: the channel of the layers
  GradientExchange<typename D::real> exchange;  ///< the same, by a channel of its own
  typename D::Context& device;
  CollectiveRef host = group;  ///< the group's channel for memory of the host
};

/// What must be equal in all processes of a job: fields, each a name and a value.
using Signature = std::vector<std::pair<std::string, std::string>>;

/// An opened strategy.
///
/// - `each(body)`: body(ReplicaContext) once in each local replica's thread; returns when all have.
///   An error in one ends the exchanges of all; the first is thrown, and `each` may be called
///   again.
/// - `local_replicas()`, `replicas()` (of the whole job), `first_replica()` (rank of local replica
///   0).
/// - `virtual_shards()`: how many slices a batch is cut into, whatever the number of replicas; 0:
///   one for each replica.
/// - `workers()`, `rank()`: how many processes the job has, and which one this is.
/// - `is_chief()`: this process reports and writes files.
/// - `agree(part, fields)`: returns if all processes of the job call it with the same fields, name
///   and value; throws in all of them if not.
/// - `note(step, phase)`: what this process does now; may be called often.
/// - `end_epoch(epoch)`: all processes have trained that epoch, counted from 0, and call it.
/// - `fail(what)`: this process ends the job's work by an error of its own; the others are told.
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

/// What a session of a single process is to the others: there are none. A base class.
struct SessionOfOneProcess {
  static std::size_t workers() { return 1; }
  static std::size_t rank() { return 0; }
  static bool is_chief() { return true; }
  static void agree(std::string_view, const Signature&) {}
  static void note(std::uint64_t, Phase) {}
  static void end_epoch(int) {}
  static void fail(const std::string&) {}
};

/// That of a single replica: nothing that compares or exchanges is compiled for it. A base class.
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
  // Not as the type that open() returns: there nvcc 13 does not look into the class.
  requires StrategySession<decltype(s.open()), typename S::device>;
};

}  // namespace lockstep
