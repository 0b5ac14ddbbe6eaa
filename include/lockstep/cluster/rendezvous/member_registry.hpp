/// \file
/// Who has come. Invariants: a rank has one member at most; the chief has no link to itself;
/// workers without a rank wait in the order in which they came.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/cluster/rendezvous/connection.hpp"
#include "lockstep/cluster/rendezvous/control.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/round_trip.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// A rank as the chief knows it.
struct MemberEntry {
  std::shared_ptr<Connection> link{};  ///< none: the chief itself, or has not come
  std::string address{};
  std::string note{};          ///< why it is missing
  std::string data_address{};  ///< LOCKSTEP_DATA_ADDRESS of the member
  Clock::time_point last_heard{};
  RankState state{};
  RoundTrip round_trip{};
};

/// A worker without a rank.
struct UnrankedWorker {
  std::shared_ptr<Connection> link;
  std::string data_address;  ///< as a MemberEntry's
};

class MemberRegistry {
 public:
  LOCKSTEP_COLD_DECL explicit MemberRegistry(const JoinSetup& setup);

  std::size_t size() const { return members_.size(); }
  MemberEntry& operator[](std::size_t rank) { return members_[rank]; }
  const MemberEntry& operator[](std::size_t rank) const { return members_[rank]; }
  auto begin() { return members_.begin(); }
  auto end() { return members_.end(); }
  auto begin() const { return members_.begin(); }
  auto end() const { return members_.end(); }
  std::list<UnrankedWorker>& unranked() { return unranked_; }

  /// For messages: "rank 1 (worker:1, 10.0.0.2:12345)".
  LOCKSTEP_COLD_DECL std::string name(std::size_t rank) const;
  LOCKSTEP_COLD_DECL std::size_t missing_count() const;

  /// The ranks that are missing: first those of which nothing was seen, then those that came and
  /// went. Workers without a rank count for the last free ones.
  LOCKSTEP_COLD_DECL MissingRanks missing_ranks() const;
  LOCKSTEP_COLD_DECL void send_to_all(const std::string& bytes) const;
  LOCKSTEP_COLD_DECL void close_all();
  /// Among all connections, as either end measured it.
  LOCKSTEP_COLD_DECL Clock::duration longest_round_trip() const;
  LOCKSTEP_COLD_DECL bool any_left() const;
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
