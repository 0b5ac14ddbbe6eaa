/// \file
/// The collective between processes over the rendezvous, for small data: all of it passes through
/// the chief. Invariants: the group has no connections of its own, and leaves nothing in the job's
/// store; all members add the same bytes in the same order, so all get the bits of ThreadGroup;
/// every wait is ended by the verdict of a lost peer, by an abort, or at its deadline.
///
/// \code
///   rank 0    value ──┐                            ┌──> all values, by rank
///   rank 1    value ──┼── chief: Rendezvous::gather ┼──> all values, by rank
///   rank 2    value ──┘                            └──> all values, by rank
/// \endcode
#pragma once

#include <string>

#include "lockstep/collectives/algorithms/process_group.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

class Rendezvous;

/// This process' member of a group of all processes of a job. An operation takes one round trip to
/// the chief for each 63 KiB of all members' data together. An abort ends the operations of this
/// process; those of the others end when it reports its failure to the rendezvous, or at their
/// deadline. A member that waits does not know for whom, and its progress names itself.
///
/// \throws PeerLost as soon as a peer is lost; CollectiveTimeout, which names an absent member, if
/// a round takes longer than `timeout`; CollectiveAborted after an abort in this process; UsageError
/// in all members if their calls differ.
/// \code
///   lockstep::StoreGroup group(job, "layers");
///   group.all_gather(&mine, 1, all.data());
/// \endcode
class StoreGroup : public ProcessGroup {
 public:
  /// `job` must outlive the group; `name` is unique among the groups of the job, and the same in all
  /// members.
  LOCKSTEP_COLD_DECL StoreGroup(Rendezvous& job, std::string name, const Options& options = {});

 private:
  struct Member;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/store_group.ipp"
#endif
