/// \file
/// The collective between processes on CPUs, over TCP. Invariants: all members get the same bits,
/// those of ThreadGroup; every wait is ended by an abort from any thread, by the loss of a
/// connection, or at its deadline, and the group cannot be used after that.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "lockstep/collectives/collective_call.hpp"
#include "lockstep/collectives/sum_members.hpp"
#include "lockstep/collectives/sum_parts.hpp"
#include "lockstep/collectives/tcp_mesh.hpp"
#include "lockstep/collectives/typed_collective.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// This process' member of a group of processes. Its operations are called by one thread at a time,
/// which also moves the data; `abort` by any. Copies are the same member. Each group of a mesh has
/// its own channel, the same in all processes; groups may be used concurrently. The algorithms are
/// those of ChannelGroup.
///
/// \throws CollectiveTimeout if a wait makes no progress for `timeout`, CollectiveAborted after an
/// abort in any process, CollectiveError if a connection is lost, LinkFailed if one is dead or
/// changes data, UsageError if the members' calls differ.
/// \code
///   lockstep::TcpGroup group(mesh, {.channel = 0});
///   group.all_reduce(gradients, n, sums, 2);
/// \endcode
class TcpGroup : public detail::TypedCollective<TcpGroup> {
 public:
  /// Options, equal in all members of the group except for the polls.
  struct Options {
    std::size_t channel = 0;
    std::chrono::nanoseconds timeout = std::chrono::seconds(30);  ///< without progress
    SumOrder order = SumOrder::ranks;
    /// Rounds over the connections before a member sleeps; use 0 if the cores are busy otherwise.
    int spins = 0;
  };

  /// \throws UsageError if the channel does not exist or is in use.
  LOCKSTEP_COLD_DECL TcpGroup(std::shared_ptr<TcpMesh> mesh, const Options& options);

  std::size_t rank() const { return mesh_->rank(); }
  std::size_t size() const { return mesh_->size(); }
  /// Ends the operations of all groups of the mesh, in all processes.
  void abort() { mesh_->abort(); }
  /// The same because `rank` was lost, which the errors of all processes then name.
  void lose(std::size_t rank) { mesh_->lose(rank); }

  /// Returns when all members have called it.
  LOCKSTEP_DECL void barrier();

 private:
  friend class detail::TypedCollective<TcpGroup>;
  struct Member;

  LOCKSTEP_DECL void reduce(std::byte* p, detail::Elements elements, detail::SumParts sum,
                            double* sums, std::size_t m);
  LOCKSTEP_DECL void send(std::byte* p, detail::Elements elements, std::size_t root);
  LOCKSTEP_DECL void gather(const std::byte* p, detail::Elements elements, std::byte* out);

  std::shared_ptr<TcpMesh> mesh_;
  std::shared_ptr<Member> member_;
};

static_assert(AllReduces<TcpGroup, float> && AllReducesWithSums<TcpGroup, float> &&
              Broadcasts<TcpGroup, float> && AllGathers<TcpGroup, float> && Barriers<TcpGroup>);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/tcp_group.ipp"
#endif
