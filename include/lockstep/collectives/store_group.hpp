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

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "lockstep/collectives/collective_call.hpp"
#include "lockstep/collectives/sum_members.hpp"
#include "lockstep/collectives/sum_parts.hpp"
#include "lockstep/collectives/typed_collective.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/exchange_progress.hpp"

namespace lockstep {

class Rendezvous;

/// This process' member of a group of all processes of a job. Its operations are called by one
/// thread at a time, `abort` and `progress` by any. Copies are the same member. An operation takes
/// one round trip to the chief for each 63 KiB of all members' data together.
///
/// \throws PeerLost as soon as a peer is lost; CollectiveTimeout, which names an absent member, if
/// a round takes longer than `timeout`; CollectiveAborted after an abort in this process; UsageError
/// in all members if their calls differ.
/// \code
///   lockstep::StoreGroup group(job, {.name = "layers"});
///   group.all_gather(&mine, 1, all.data());
/// \endcode
class StoreGroup : public detail::TypedCollective<StoreGroup> {
 public:
  /// Options, equal in all members.
  struct Options {
    std::string name;  ///< unique among the groups of the job
    std::chrono::nanoseconds timeout = std::chrono::seconds(30);
    SumOrder order = SumOrder::ranks;
  };

  /// `job` must outlive the group.
  LOCKSTEP_COLD_DECL StoreGroup(Rendezvous& job, const Options& options);

  LOCKSTEP_COLD_DECL std::size_t rank() const;
  LOCKSTEP_COLD_DECL std::size_t size() const;
  /// Ends the operations of this process. Those of the others end when it reports its failure to
  /// the rendezvous, or at their deadline.
  LOCKSTEP_COLD_DECL void abort();
  /// The finished rounds. A member that waits does not know for whom, and names itself.
  LOCKSTEP_COLD_DECL ExchangeProgress progress() const;

  /// Returns when all members have called it.
  LOCKSTEP_COLD_DECL void barrier();

 private:
  friend class detail::TypedCollective<StoreGroup>;
  struct Member;

  LOCKSTEP_COLD_DECL void reduce(std::byte* p, detail::Elements elements, detail::SumParts sum,
                                 double* sums, std::size_t m);
  LOCKSTEP_COLD_DECL void send(std::byte* p, detail::Elements elements, std::size_t root);
  LOCKSTEP_COLD_DECL void gather(const std::byte* p, detail::Elements elements, std::byte* out);

  std::shared_ptr<Member> member_;
};

static_assert(AllReduces<StoreGroup, float> && AllReducesWithSums<StoreGroup, float> &&
              Broadcasts<StoreGroup, float> && AllGathers<StoreGroup, float> &&
              Barriers<StoreGroup>);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/store_group.ipp"
#endif
