/// \file
/// What a process brings to the rendezvous.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/secret.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep {

/// What a process brings to the rendezvous.
struct RendezvousOptions {
  ResolvedCluster cluster;  ///< who is in the job; the deadline of the join is in it
  Secret secret{};          ///< empty: plain TCP
  /// What must be equal on all ranks from the beginning, beside version and cluster.
  std::vector<SignatureField> signature{};
  StallLimits stall_limits{};
  /// Called in a thread of its own, one call at a time; empty: nothing is said.
  std::function<void(LogLevel, std::string_view)> log = [](LogLevel level, std::string_view line) {
    lockstep::log(level, line);
  };
};

}  // namespace lockstep
