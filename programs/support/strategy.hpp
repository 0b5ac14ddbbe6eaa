/// \file
/// Creates the strategy that the command line requests.
#pragma once

#include <cstddef>

#include <lockstep/collectives/thread_group.hpp>

#include "support/options.hpp"

namespace support {

/// Whether S trains in several processes; workers.hpp handles their options.
template <class S>
constexpr bool has_workers = requires(S s) { s.cluster; };

/// Whether the job of S has parameter servers, and each process one replica.
template <class S>
constexpr bool has_servers = requires { S::has_servers; };

/// An S with the options' replicas, threads and virtual shards.
/// \code
///   support::strategy<ls::Mirrored<ls::Cpu>>(options)
/// \endcode
template <class S>
S strategy(const Options& options) {
  S s;
  if constexpr (requires { s.on.threads; }) s.on.threads = options.threads;
  s.virtual_shards = options.virtual_shards;
  if constexpr (requires { s.replicas; }) s.replicas = options.replicas;
  if constexpr (requires { apply_wire(s.policy, options); }) apply_wire(s.policy, options);
  if constexpr (has_workers<S>) describe_workers(s, options);
  if constexpr (requires { s.policy.outer_rate; }) {
    if (options.update == "local") s.policy = {.steps = 16, .outer_rate = 1, .momentum = 0};
    s.policy.steps = options.sync_every.value_or(s.policy.steps);
  }
  return s;
}

/// Whether S uses all devices of the machine by default.
template <class S>
constexpr bool counts_devices = requires { S::device::available(); };

/// Whether S has replicas, which an update policy serves.
template <class S>
constexpr bool has_updates = requires(S s) { s.replicas; };

/// Maximum number of replicas of S in a process; 0 if the number cannot be chosen.
template <class S>
constexpr std::size_t replica_limit() {
  if constexpr (requires { S::replica_limit; })
    return S::replica_limit;
  else if constexpr (has_workers<S> && !has_servers<S>)
    return lockstep::ThreadGroup::max_size;
  else
    return 0;
}

}  // namespace support
