#pragma once

#include "lockstep/strategies/virtual_shards.hpp"

#include <bit>

namespace lockstep {

namespace detail {

void check_virtual_shards(std::size_t shards, std::size_t replicas) {
  if (shards == 0) return;
  if (!std::has_single_bit(shards) || shards > virtual_shard_limit)
    throw UsageError(
        "virtual_shards: {} slices; use a power of two up to {}, or 0 for one slice a replica",
        shards, virtual_shard_limit);
  if (!std::has_single_bit(replicas) || replicas > shards)
    throw UsageError(
        "virtual_shards: {} slices cannot be shared by {} replicas; use 1, 2, 4, ... replicas, at "
        "most as many as slices",
        shards, replicas);
}

}  // namespace detail

}  // namespace lockstep
