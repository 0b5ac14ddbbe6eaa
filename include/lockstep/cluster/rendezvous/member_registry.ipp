#pragma once

#include "lockstep/cluster/rendezvous/member_registry.hpp"

#include <algorithm>
#include <cstdint>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

MemberRegistry::MemberRegistry(const JoinSetup& setup)
    : setup_(setup), members_(setup.cluster.world_size) {
  members_[0].address = setup.described_address(0);
}

std::string MemberRegistry::name(std::size_t rank) const {
  if (setup_.cluster.cluster || rank == 0 || members_[rank].address.empty())
    return setup_.cluster.name(rank);
  return format_text("rank {} ({})", rank, members_[rank].address);
}

std::size_t MemberRegistry::missing_count() const {
  const auto free = std::count_if(members_.begin() + 1, members_.end(),
                                  [](const MemberEntry& m) { return m.link == nullptr; });
  const auto free_ranks = static_cast<std::size_t>(free);
  return free_ranks - std::min(unranked_.size(), free_ranks);
}

MissingRanks MemberRegistry::missing_ranks() const {
  constexpr std::size_t max_names = 8, max_note_length = 200;
  MissingRanks result;
  const std::size_t count = missing_count();
  result.count = static_cast<std::uint32_t>(count);
  // Ranks that never connected come first: they are the likelier cause.
  std::vector<std::size_t> ranks, were_here;
  for (std::size_t r = 1; r < members_.size() && ranks.size() + were_here.size() < count; ++r)
    if (!members_[r].link) (members_[r].note.empty() ? ranks : were_here).push_back(r);
  ranks.insert(ranks.end(), were_here.begin(), were_here.end());
  if (!ranks.empty()) result.first = static_cast<std::uint32_t>(ranks.front());
  for (std::size_t i = 0; i < std::min(ranks.size(), max_names); ++i) {
    const std::string& note = members_[ranks[i]].note;
    result.names += (i > 0 ? ", " : "") + setup_.cluster.name(ranks[i]);
    if (!note.empty()) result.names += " (" + printable(note, max_note_length) + ")";
  }
  if (ranks.size() > max_names)
    result.names += format_text(" and {} more", ranks.size() - max_names);
  return result;
}

void MemberRegistry::send_to_all(const std::string& bytes) const {
  for (const MemberEntry& member : members_)
    if (member.link) member.link->send(bytes);
  // A copy: a connection that fails while sending removes itself from the list.
  const auto unranked = unranked_;
  for (const UnrankedWorker& worker : unranked) worker.link->send(bytes);
}

void MemberRegistry::close_all() {
  for (MemberEntry& member : members_)
    if (member.link) member.link->close();
  for (const UnrankedWorker& worker : unranked_) worker.link->close();
}

Clock::duration MemberRegistry::longest_round_trip() const {
  Clock::duration longest{0};
  for (const MemberEntry& member : members_)
    if (member.link)
      longest =
          std::max({longest, member.round_trip.longest(), member.round_trip.longest_of_peer()});
  return longest;
}

bool MemberRegistry::any_left() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const MemberEntry& m) { return m.state.left; });
}

bool MemberRegistry::all_left() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const MemberEntry& m) { return m.state.left; });
}

}  // namespace lockstep::detail
