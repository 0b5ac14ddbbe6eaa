/// \file
/// Checks of the option `.virtual_shards`. Invariant: what a slice computes does not depend on the
/// number of replicas.
///
/// 8 slices on 1, 2 or 4 replicas give the same bits, because each replica owns a whole subtree of
/// the tree in which the slices' gradients are added:
/// \code
///     slices      0   1   2   3   4   5   6   7
///     tree         \ /     \ /     \ /     \ /
///     4 replicas    r0      r1      r2      r3
///     2 replicas        r0              r1
///     1 replica                 r0
/// \endcode
#pragma once

#include <cstddef>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// More slices of a batch are considered a mistake.
inline constexpr std::size_t virtual_shard_limit = 4096;

namespace detail {

/// \throws UsageError if `shards` is not a power of two, or `replicas` do not own whole subtrees.
/// 0 shards: the option is off.
LOCKSTEP_COLD_DECL void check_virtual_shards(std::size_t shards, std::size_t replicas);

/// `device` with one thread, because the order of additions in a sum depends on the number of
/// threads. \throws UsageError if the device was set to more.
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
