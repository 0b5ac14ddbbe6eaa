#pragma once

#include "lockstep/cluster/elastic/proposer.hpp"

#include <algorithm>

namespace lockstep::detail {

void Proposer::begin(std::string value) {
  ballot_.round = std::max(ballot_.round, seen_) + 1;
  seen_ = ballot_.round;
  highest_ = {};
  value_ = std::move(value);
  answered_.assign(quorum_.size(), false);
  phase_ = Phase::preparing;
}

bool Proposer::counts(Phase phase, std::size_t machine, const Ballot& asked,
                      const Ballot& promised) {
  seen_ = std::max(seen_, promised.round);
  if (phase_ != phase || asked != ballot_ || machine >= answered_.size()) return false;
  if (promised > ballot_) phase_ = Phase::refused;
  return phase_ == phase;
}

void Proposer::on_promise(std::size_t machine, const Ballot& asked, const Vote& vote) {
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

void Proposer::on_accepted(std::size_t machine, const Ballot& asked, const Ballot& promised) {
  if (!counts(Phase::accepting, machine, asked, promised)) return;
  answered_[machine] = true;
  if (quorum_.reached(answered_)) phase_ = Phase::decided;
}

}  // namespace lockstep::detail
