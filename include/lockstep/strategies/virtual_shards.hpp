/// \file
/// What `.virtual_shards` asks of a strategy. Invariant: what a slice computes does not depend on
/// the number of replicas.
#pragma once

#include <cstddef>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// More slices of a batch are a slip.
inline constexpr std::size_t virtual_shard_limit = 4096;

namespace detail {

/// \throws UsageError if `shards` slices cannot be halved down to single ones, or `replicas` do not
/// hold whole branches of that tree. 0 shards: nothing is asked.
LOCKSTEP_COLD_DECL void check_virtual_shards(std::size_t shards, std::size_t replicas);

/// `device` with one thread: the number of threads decides in what order a sum is made.
/// \throws UsageError if it was given more.
template <class D>
D of_one_thread(D device) {
  if constexpr (requires { device.threads; }) {
    if (device.threads > 1)
      throw UsageError(
          "virtual_shards: a slice is computed by one thread, not by {}; leave the device's "
          "threads at 0, or set 1",
          device.threads);
    device.threads = 1;
  }
  return device;
}

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/strategies/virtual_shards.ipp"
#endif
