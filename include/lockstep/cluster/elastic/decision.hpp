/// \file
/// The membership of a generation. Invariants: the encoded form fits into one frame with room to
/// spare; a decoded one has at least one seat, distinct indices, and none out of range.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/elastic/identity.hpp"
#include "lockstep/cluster/network/frames.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

/// The most processes in the description of an elastic job.
inline constexpr std::size_t max_elastic_workers = 1024;

/// A member of a generation.
struct Seat {
  static constexpr std::uint32_t newcomer = 0xFFFF'FFFF;
  Identity who{};
  MachineId machine{};
  std::uint32_t former = newcomer;  ///< the rank in the generation before
  bool operator==(const Seat&) const = default;
};

/// The part of a process in the job, in the order of ranks.
enum class SeatRole : std::uint8_t { worker, server, chief };

/// The indices in the description of the processes that compute and of those that own weights; a
/// process in neither is a chief. Without servers all are workers.
struct DescribedTasks {
  Slice workers{}, servers{};

  [[gnu::cold]] SeatRole role_of(const Seat& seat) const {
    if (servers.contains(seat.who.index)) return SeatRole::server;
    return is_worker(seat) ? SeatRole::worker : SeatRole::chief;
  }
  [[gnu::cold]] bool is_worker(const Seat& seat) const {
    return servers.count == 0 || workers.contains(seat.who.index);
  }
  /// The ranks of a role among seats that order_by_role has ordered.
  [[gnu::cold]] Slice ranks_of(SeatRole role, const std::vector<Seat>& seats) const {
    Slice ranks;
    for (std::size_t r = 0; r < seats.size(); ++r)
      if (role_of(seats[r]) == role && ranks.count++ == 0) ranks.first = r;
    return ranks;
  }
};

/// The members of a generation, and the place at which they meet.
struct Decision {
  std::uint64_t run = 0;      ///< random, not 0; the same in all generations of a run
  std::uint64_t number = 0;   ///< of the generation
  std::uint64_t nonce = 0;    ///< random; part of the generation's job id
  std::uint16_t port = 0;     ///< at which rank 0 waits for the others
  std::vector<Seat> seats{};  ///< by rank

  bool operator==(const Decision&) const = default;

  /// The rank of a process; nullopt if it is not a member.
  [[gnu::cold]] std::optional<std::size_t> rank_of(const Identity& who) const {
    for (std::size_t r = 0; r < seats.size(); ++r)
      if (seats[r].who == who) return r;
    return std::nullopt;
  }
  /// The machines of the members, by rank.
  [[gnu::cold]] std::vector<MachineId> machines() const {
    std::vector<MachineId> result;
    for (const Seat& seat : seats) result.push_back(seat.machine);
    return result;
  }

  [[gnu::cold]] void write(FrameWriter& to) const {
    to.number(run).number(number).number(nonce).number(port);
    to.number(static_cast<std::uint32_t>(seats.size()));
    for (const Seat& seat : seats) {
      to.number(seat.who.index).number(seat.who.incarnation).number(seat.former);
      for (const auto byte : seat.machine) to.number(byte);
    }
  }
  [[gnu::cold]] void read(FrameReader& from) {
    constexpr std::size_t seat_bytes = 32;
    run = from.number<std::uint64_t>();
    number = from.number<std::uint64_t>();
    nonce = from.number<std::uint64_t>();
    port = from.number<std::uint16_t>();
    seats.resize(std::min(from.count(seat_bytes), max_elastic_workers + 1));
    from.require(run != 0 && !seats.empty() && seats.size() <= max_elastic_workers);
    std::vector<bool> taken(max_elastic_workers);
    for (Seat& seat : seats) {
      seat.who.index = from.number<std::uint32_t>();
      seat.who.incarnation = from.number<std::uint64_t>();
      seat.former = from.number<std::uint32_t>();
      for (auto& byte : seat.machine) byte = from.number<std::uint8_t>();
      from.require(seat.who.index < max_elastic_workers);
      if (from.failed()) return;
      from.require(!taken[seat.who.index]);
      taken[seat.who.index] = true;
      from.require(seat.former == Seat::newcomer || seat.former < max_elastic_workers);
    }
  }
};

/// The value on which machines vote.
[[gnu::cold]] inline std::string encode(const Decision& decision) {
  FrameWriter writer(FrameType::agreement);
  decision.write(writer);
  return std::move(writer).finish().substr(frame_header);
}
/// The inverse; nullopt if `value` is malformed.
[[gnu::cold]] inline std::optional<Decision> decode(std::string_view value) {
  FrameReader reader(value);
  Decision decision;
  decision.read(reader);
  if (!reader.finished()) return std::nullopt;
  return decision;
}

}  // namespace lockstep::detail
