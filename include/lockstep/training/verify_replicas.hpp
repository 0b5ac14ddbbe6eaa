/// \file
/// Whether all replicas hold the same weights. Invariant: every replica compares the same digests,
/// so that all come to the same end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/sha256.hpp"

namespace lockstep::detail {

/// A tensor of one replica: a parameter, or what the optimizer keeps for it.
struct NamedBytes {
  std::string name;
  std::span<const std::byte> bytes;
};

/// One exchange of a SHA-256 for each tensor. Called by all replicas of `group`, each with its own
/// values of the same tensors. \throws ReplicasDiverged, which names the first replica and tensor
/// that differ from replica 0's.
[[gnu::cold]] inline void verify_equal(const CollectiveRef& group,
                                       const std::vector<NamedBytes>& tensors, std::uint64_t step) {
  constexpr std::size_t width = 64;
  std::string mine, all;
  for (const NamedBytes& t : tensors) mine += sha256_hex(t.bytes);
  all.resize(mine.size() * group.size());
  group.all_gather(reinterpret_cast<const std::byte*>(mine.data()), mine.size(),
                   reinterpret_cast<std::byte*>(all.data()));
  for (std::size_t replica = 1; replica < group.size(); ++replica)
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::size_t at = replica * mine.size() + i * width;
      if (all.compare(at, width, all, i * width, width) != 0)
        throw ReplicasDiverged(replica, tensors[i].name, step);
    }
}

}  // namespace lockstep::detail
