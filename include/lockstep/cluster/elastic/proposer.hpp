/// \file
/// A member's attempts to decide a generation. Invariants: no I/O and no clock; a round is begun at
/// most once; the value of a round never changes once it was sent.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/cluster/elastic/ballot.hpp"
#include "lockstep/cluster/elastic/quorum.hpp"

namespace lockstep::detail {

/// Single-decree Paxos, the side that proposes:
///
///     idle --begin--> preparing --promises of a quorum--> accepting --votes of a quorum--> decided
///               ^         |  the value of the highest         |
///               |         |  accepted ballot replaces ours    |
///               '----- refused <------- a higher ballot ------'
class Proposer {
 public:
  enum class Phase : std::uint8_t { idle, preparing, accepting, decided, refused };

  Proposer() = default;
  Proposer(Quorum quorum, std::uint32_t rank) : quorum_(std::move(quorum)), ballot_{0, rank} {}

  /// Begins a round above all that were seen. `value` is proposed unless one may be decided.
  [[gnu::cold]] void begin(std::string value) {
    ballot_.round = std::max(ballot_.round, seen_) + 1;
    seen_ = ballot_.round;
    highest_ = {};
    value_ = std::move(value);
    answered_.assign(quorum_.size(), false);
    phase_ = Phase::preparing;
  }
  /// A machine's answer to `prepare`: its vote after the call.
  [[gnu::cold]] void on_promise(std::size_t machine, const Ballot& asked, const Vote& vote) {
    if (!counts(Phase::preparing, machine, asked, vote.promised)) return;
    answered_[machine] = true;
    if (vote.accepted > highest_) {
      highest_ = vote.accepted;
      value_ = vote.value;
    }
    if (!quorum_.reached(answered_)) return;
    answered_.assign(quorum_.size(), false);
    phase_ = Phase::accepting;
  }
  /// A machine's answer to `accept`. `promised` is its highest promise after the call.
  [[gnu::cold]] void on_accepted(std::size_t machine, const Ballot& asked, const Ballot& promised) {
    if (!counts(Phase::accepting, machine, asked, promised)) return;
    answered_[machine] = true;
    if (quorum_.reached(answered_)) phase_ = Phase::decided;
  }

  Phase phase() const { return phase_; }
  const Ballot& ballot() const { return ballot_; }
  /// To be accepted, or decided.
  const std::string& value() const { return value_; }
  /// True if a machine has to answer in this phase.
  bool waits_for(std::size_t machine) const {
    return (phase_ == Phase::preparing || phase_ == Phase::accepting) && !answered_[machine];
  }
  const Quorum& quorum() const { return quorum_; }
  /// The answers of this phase, by machine.
  const std::vector<bool>& answered() const { return answered_; }
  /// The highest accepted ballot that a promise of this round has reported.
  const Ballot& highest_accepted() const { return highest_; }
  /// The highest round that any answer has mentioned.
  std::uint32_t seen() const { return seen_; }

 private:
  /// True if the answer belongs to this phase and is not a refusal.
  [[gnu::cold]] bool counts(Phase phase, std::size_t machine, const Ballot& asked,
                            const Ballot& promised) {
    seen_ = std::max(seen_, promised.round);
    if (phase_ != phase || asked != ballot_ || machine >= answered_.size()) return false;
    if (promised > ballot_) phase_ = Phase::refused;
    return phase_ == phase;
  }

  Quorum quorum_;
  Ballot ballot_{}, highest_{};
  Phase phase_ = Phase::idle;
  std::string value_;
  std::vector<bool> answered_;
  std::uint32_t seen_ = 0;
};

}  // namespace lockstep::detail
