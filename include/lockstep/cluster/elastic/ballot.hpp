/// \file
/// The memory of a voter in single-decree Paxos (Lamport, "Paxos made simple"). Invariants: the
/// promised ballot never becomes lower; a vote is accepted only at or above it.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>

namespace lockstep::detail {

/// An attempt to decide. Unique, because a member begins each round at most once.
struct Ballot {
  std::uint32_t round = 0;  ///< 0: none
  std::uint32_t rank = 0;   ///< of the member that makes the attempt
  auto operator<=>(const Ballot&) const = default;
};

/// The promise and the vote of a machine for one generation.
struct Vote {
  Ballot promised{}, accepted{};
  std::string value{};  ///< of the accepted ballot
  bool operator==(const Vote&) const = default;

  /// Promises to accept nothing below `ballot`. False if a higher one has the promise.
  bool prepare(const Ballot& ballot) {
    if (ballot < promised) return false;
    promised = ballot;
    return true;
  }
  /// Accepts `proposed`, unless a higher ballot has the promise.
  bool accept(const Ballot& ballot, std::string proposed) {
    if (ballot < promised) return false;
    promised = accepted = ballot;
    value = std::move(proposed);
    return true;
  }
};

}  // namespace lockstep::detail
