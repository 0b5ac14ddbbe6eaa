/// \file
/// Verification that all replicas hold the same weights. Invariant: every replica compares the same
/// digests, so all reach the same verdict.
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

/// A tensor of one replica: a parameter, or an optimizer slot of one. Or the text of settings.
struct NamedBytes {
  std::string name;
  std::span<const std::byte> bytes;
  bool is_parameter = false, is_setting = false;
};

/// The process of a replica, for the error message. Trivially copyable: sent as bytes.
struct ReplicaOrigin {
  std::uint64_t rank = 0;
  std::uint64_t sets = 0;  ///< calls of set_weights and load_weights since the last comparison
};

/// Whether all replicas of `group` pass the same digest. Collective; every replica gets the same
/// answer.
LOCKSTEP_COLD_DECL bool have_equal_digests(const CollectiveRef& group, std::uint64_t digest);

/// Compares the tensors' SHA-256 digests in one all-gather. Collective: all replicas of `group`
/// call it with their own values of the same tensors. \throws ReplicasDiverged naming the first
/// replica and tensor that differ from the majority's or, without a majority, from replica 0's.
LOCKSTEP_COLD_DECL void verify_equal(const CollectiveRef& group,
                                     const std::vector<NamedBytes>& tensors,
                                     const ReplicaOrigin& origin, std::uint64_t step);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checks/verify_replicas.ipp"
#endif
