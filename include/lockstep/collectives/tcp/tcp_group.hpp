/// \file
/// The collective between processes on CPUs, over TCP. Invariants: all members get the same bits,
/// those of ThreadGroup; every wait is ended by an abort from any thread, by the loss of a
/// connection, or at its deadline, and the group cannot be used after that.
#pragma once

#include <memory>

#include "lockstep/collectives/algorithms/process_group.hpp"
#include "lockstep/collectives/tcp/tcp_mesh.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// This process' member of a group of processes. Its operations are called by one thread at a time,
/// which also moves the data. An abort ends the operations of all groups of the mesh. Each group of a
/// mesh has its own channel, the same in all processes; groups may be used concurrently. The algorithms are
/// those of ChannelGroup.
///
/// \throws CollectiveTimeout if a wait makes no progress for `timeout`, CollectiveAborted after an
/// abort in any process, CollectiveError if a connection is lost, LinkFailed if one is dead or
/// changes data, UsageError if the members' calls differ.
/// \code
///   lockstep::TcpGroup group(mesh, {.channel = 0});
///   group.all_reduce(gradients, n, sums, 2);
/// \endcode
class TcpGroup : public ProcessGroup {
 public:
  /// \throws UsageError if the channel does not exist or is in use.
  LOCKSTEP_COLD_DECL TcpGroup(std::shared_ptr<TcpMesh> mesh, const Options& options);

 private:
  struct Member;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/tcp/tcp_group.ipp"
#endif
