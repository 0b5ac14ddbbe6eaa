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
#include "lockstep/core/slice.hpp"

namespace lockstep {

/// More slices of a batch are considered a mistake.
inline constexpr std::size_t virtual_shard_limit = 4096;

namespace detail {

/// The slices of one of `members` members: the leaves of its subtree if the tree of all slices is
/// divided as SumOrder::tree divides the members. Members whose number is not a power of two have
/// unequal numbers of slices: of 8 slices, 3 members compute 2, 2 and 4.
constexpr Slice subtree_of(std::size_t shards, std::size_t members, std::size_t index) {
  if (members <= 1) return {0, shards};
  const std::size_t left = (members + 1) / 2;
  if (index < left) return subtree_of(shards / 2, left, index);
  const Slice right = subtree_of(shards / 2, members - left, index - left);
  return {shards / 2 + right.first, right.count};
}
static_assert(subtree_of(8, 3, 0) == Slice{0, 2} && subtree_of(8, 3, 1) == Slice{2, 2} &&
              subtree_of(8, 3, 2) == Slice{4, 4} && subtree_of(8, 4, 3) == Slice{6, 2});

/// Whether each of `workers` workers gets a subtree that its `each` replicas can share, as in an
/// elastic job that has lost a worker.
constexpr bool can_share_slices(std::size_t shards, std::size_t workers, std::size_t each) {
  return shards == 0 || (std::has_single_bit(each) && std::bit_ceil(workers) * each <= shards);
}

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
