/// \file
/// What `.virtual_shards` asks of a strategy. Invariant: what a slice computes does not depend on
/// the number of replicas.
#pragma once

#include <bit>
#include <cstddef>

#include "lockstep/core/error.hpp"

namespace lockstep {

/// More slices of a batch are a slip.
inline constexpr std::size_t virtual_shard_limit = 4096;

namespace detail {

/// \throws UsageError if `shards` slices cannot be halved down to single ones, or `replicas` do not
/// hold whole branches of that tree. 0 shards: nothing is asked.
[[gnu::cold]] inline void check_virtual_shards(std::size_t shards, std::size_t replicas) {
  if (shards == 0) return;
  if (!std::has_single_bit(shards) || shards > virtual_shard_limit)
    throw UsageError({"virtual_shards: ", shards, " slices; use a power of two up to ",
                      virtual_shard_limit, ", or 0 for one slice a replica"});
  if (!std::has_single_bit(replicas) || replicas > shards)
    throw UsageError({"virtual_shards: ", shards, " slices cannot be shared by ", replicas,
                      " replicas; use 1, 2, 4, ... replicas, at most as many as slices"});
}

/// `device` with one thread: the number of threads decides in what order a sum is made.
/// \throws UsageError if it was given more.
template <class D>
D of_one_thread(D device) {
  if constexpr (requires { device.threads; }) {
    if (device.threads > 1)
      throw UsageError({"virtual_shards: a slice is computed by one thread, not by ",
                        device.threads, "; leave the device's threads at 0, or set 1"});
    device.threads = 1;
  }
  return device;
}

}  // namespace detail
}  // namespace lockstep
