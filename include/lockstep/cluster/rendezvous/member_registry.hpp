/// \file
/// The chief's table of members. Invariants: each rank has at most one member; the chief has no
/// connection to itself; workers without a rank are queued in the order of their arrival.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/cluster/network/connection.hpp"
#include "lockstep/cluster/rendezvous/control.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/round_trip.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// A rank as the chief knows it.
struct MemberEntry {
  std::shared_ptr<Connection> link{};  ///< null: the chief itself, or not connected
  std::string address{};
  std::string note{};          ///< why the last attempt to join failed
  std::string data_address{};  ///< of its Hello; may be empty
  Clock::time_point last_heard{};
  RankState state{};
  RoundTrip round_trip{};
};

/// A worker whose index is "auto": it gets the lowest free rank when all have joined.
struct UnrankedWorker {
  std::shared_ptr<Connection> link;
  std::string data_address;  ///< as in MemberEntry
};

/// All ranks of the job, in order, and the workers that have no rank yet.
class MemberRegistry {
 public:
  /// One entry for each rank. `setup` must outlive the registry.
  LOCKSTEP_COLD_DECL explicit MemberRegistry(const JoinSetup& setup);

  std::size_t size() const { return members_.size(); }
  MemberEntry& operator[](std::size_t rank) { return members_[rank]; }
  const MemberEntry& operator[](std::size_t rank) const { return members_[rank]; }
  auto begin() { return members_.begin(); }
  auto end() { return members_.end(); }
  auto begin() const { return members_.begin(); }
  auto end() const { return members_.end(); }
  /// Workers without a rank, in the order of their arrival.
  std::list<UnrankedWorker>& unranked() { return unranked_; }

  /// For messages: "rank 1 (worker:1, 10.0.0.2:12345)".
  LOCKSTEP_COLD_DECL std::string name(std::size_t rank) const;
  /// How many ranks have not joined.
  LOCKSTEP_COLD_DECL std::size_t missing_count() const;

  /// The missing ranks: first those that never connected, then those that connected and left. Each
  /// worker without a rank takes the place of one of the last free ranks.
  LOCKSTEP_COLD_DECL MissingRanks missing_ranks() const;
  /// Sends a frame to every connected worker, with or without a rank.
  LOCKSTEP_COLD_DECL void send_to_all(const std::string& bytes) const;
  /// Closes every connection.
  LOCKSTEP_COLD_DECL void close_all();
  /// The longest round trip on any connection, as measured by either end.
  LOCKSTEP_COLD_DECL Clock::duration longest_round_trip() const;
  /// True if at least one rank has left.
  LOCKSTEP_COLD_DECL bool any_left() const;
  /// True if every rank has left.
  LOCKSTEP_COLD_DECL bool all_left() const;

 private:
  const JoinSetup& setup_;
  std::vector<MemberEntry> members_;
  std::list<UnrankedWorker> unranked_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/member_registry.ipp"
#endif
