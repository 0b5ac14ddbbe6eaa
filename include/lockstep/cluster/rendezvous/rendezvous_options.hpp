/// \file
/// The arguments of a Rendezvous.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/network/secret.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep {

/// The arguments of a Rendezvous.
struct RendezvousOptions {
  ResolvedCluster cluster;  ///< who is in the job; also holds the join deadline
  Secret secret{};          ///< empty: plain TCP
  /// Fields that must be equal on all ranks at the join, in addition to version, cluster and
  /// timeouts.
  std::vector<SignatureField> signature{};
  /// How long a rank may make no progress.
  StallLimits stall_limits{};
  /// Called on a separate thread, one line at a time. Empty: no log.
  std::function<void(LogLevel, std::string_view)> log = [](LogLevel level, std::string_view line) {
    lockstep::log(level, line);
  };
};

}  // namespace lockstep
