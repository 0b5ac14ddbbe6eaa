/// \file
/// The default data plane: TCP between machines, shared memory within each.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/collectives/shared_memory/shared_memory.hpp"
#include "lockstep/collectives/tcp/tcp_mesh.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/strategies/job/data_plane.hpp"

namespace lockstep {

/// Workers that all run on one machine exchange through shared memory if they can open it (see
/// LOCKSTEP_TRANSPORT). If several machines have several workers each, those of a machine exchange
/// through shared memory and share the sending to other machines (MachineGroup), provided that their
/// ranks are neighbors; others exchange over TCP. A connection is made by a TLS 1.3 handshake with the key of
/// the run; between machines all data are encrypted with keys from it (AES-128-GCM), within one
/// they carry a checksum only (see LOCKSTEP_WIRE).
/// \code
///   ls::MultiWorkerMirrored<ls::Cpu>{}           // over ls::Tcp
///   ls::MultiWorkerMirrored<ls::Cpu, ls::Mpi>{}  // over MPI; needs lockstep::mpi
/// \endcode
struct Tcp {
  static constexpr std::string_view name = "tcp";
  LOCKSTEP_COLD_DECL static JobGroups connect(const JobLinks& links);
  /// A group of two for each of `peers`, in which the lower rank is member 0. All processes of the job
  /// call it, and those of a pair name each other.
  LOCKSTEP_COLD_DECL static std::vector<ProcessGroup> connect_pairs(
      const JobLinks& links, const std::vector<std::size_t>& peers);
};
static_assert(DataPlane<Tcp> && ConnectsPairs<Tcp>);

namespace detail {

/// Null if the processes are to use TCP: all decide alike. \throws ClusterError on all ranks if the
/// job insists on shared memory.
LOCKSTEP_COLD_DECL std::shared_ptr<SharedMemory> open_shared_memory(const JobLinks& links);

/// Waits until all `members` have called it with the same `name`: each has its connections to the
/// others. \throws PeerLost.
LOCKSTEP_COLD_DECL void wait_for_connected(const JobLinks& links, std::string_view name,
                                           const std::vector<std::size_t>& members);

/// Connects this process with its peers among `members`, which are ranks in increasing order.
/// \throws CollectiveError, PeerLost.
LOCKSTEP_COLD_DECL std::shared_ptr<TcpMesh> connect_tcp(const JobLinks& links,
                                                        const std::vector<std::size_t>& members);

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/strategies/planes/tcp_plane.ipp"
#endif
