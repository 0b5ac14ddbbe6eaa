#pragma once

#include "lockstep/cluster/rendezvous/roll.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "lockstep/core/text.hpp"

namespace lockstep::detail {

Roll::Roll(const JoinSetup& setup) : setup_(setup), members_(setup.cluster.world_size) {
  members_[0].address = setup.described_address(0);
}

std::string Roll::name(std::size_t rank) const {
  if (setup_.cluster.cluster || rank == 0 || members_[rank].address.empty())
    return setup_.cluster.name(rank);
  return text({"rank ", rank, " (", members_[rank].address, ")"});
}

std::size_t Roll::missing() const {
  const auto free = std::count_if(members_.begin() + 1, members_.end(),
                                  [](const RollEntry& m) { return m.link == nullptr; });
  const auto free_ranks = static_cast<std::size_t>(free);
  return free_ranks - std::min(unplaced_.size(), free_ranks);
}

Waiting Roll::waiting() const {
  constexpr std::size_t most_names = 8, longest_note = 200;
  Waiting result;
  const std::size_t count = missing();
  result.count = static_cast<std::uint32_t>(count);
  std::vector<std::size_t> ranks;
  for (std::size_t r = 1; r < members_.size() && ranks.size() < count; ++r)
    if (!members_[r].link) ranks.push_back(r);
  // Not std::stable_partition: clang 19 reports libstdc++ 12's as deprecated in users' builds.
  const auto order = [this](std::size_t r) { return std::pair(!members_[r].note.empty(), r); };
  std::sort(ranks.begin(), ranks.end(),
            [&](std::size_t a, std::size_t b) { return order(a) < order(b); });
  if (!ranks.empty()) result.first = static_cast<std::uint32_t>(ranks.front());
  for (std::size_t i = 0; i < std::min(ranks.size(), most_names); ++i) {
    const std::string& note = members_[ranks[i]].note;
    result.names += (i > 0 ? ", " : "") + setup_.cluster.name(ranks[i]);
    if (!note.empty()) result.names += " (" + printable(note, longest_note) + ")";
  }
  if (ranks.size() > most_names)
    result.names += text({" and ", ranks.size() - most_names, " more"});
  return result;
}

void Roll::send_to_all(const std::string& bytes) const {
  for (const RollEntry& member : members_)
    if (member.link) member.link->send(bytes);
  // A connection that ends takes itself out of the list.
  const auto unplaced = unplaced_;
  for (const auto& link : unplaced) link->send(bytes);
}

void Roll::close_all() {
  for (RollEntry& member : members_)
    if (member.link) member.link->close();
  for (const auto& link : unplaced_) link->close();
}

Clock::duration Roll::longest_round_trip() const {
  Clock::duration longest{0};
  for (const RollEntry& member : members_)
    if (member.link)
      longest =
          std::max({longest, member.round_trip.longest(), member.round_trip.longest_of_peer()});
  return longest;
}

bool Roll::any_left() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const RollEntry& m) { return m.state.left; });
}

bool Roll::all_left() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const RollEntry& m) { return m.state.left; });
}

}  // namespace lockstep::detail
