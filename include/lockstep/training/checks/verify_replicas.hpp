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
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// A tensor of one replica: a parameter, or what the optimizer keeps for it.
struct NamedBytes {
  std::string name;
  std::span<const std::byte> bytes;
  bool is_parameter = false;
};

/// The process of a replica.
struct ReplicaOrigin {
  std::uint64_t rank = 0;
  std::uint64_t sets = 0;  ///< calls of set_weights and load_weights since the last comparison
};

/// One exchange of a SHA-256 for each tensor. Called by all replicas of `group`, each with its own
/// values of the same tensors. \throws ReplicasDiverged, which names the first replica and tensor
/// that differ from most replicas' or, where no value has a majority, from replica 0's.
LOCKSTEP_COLD_DECL void verify_equal(const CollectiveRef& group,
                                     const std::vector<NamedBytes>& tensors,
                                     const ReplicaOrigin& origin, std::uint64_t step);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checks/verify_replicas.ipp"
#endif
