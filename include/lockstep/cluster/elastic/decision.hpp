/// \file
/// The membership of a generation. Invariants: the encoded form fits into one frame with room to
/// spare; a decoded one has at least one seat, distinct indices, and none out of range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/elastic/identity.hpp"
#include "lockstep/cluster/rendezvous/frames.hpp"
#include "lockstep/core/config.hpp"

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

/// The members of a generation, and the place at which they meet.
struct Decision {
  std::uint64_t run = 0;      ///< random, not 0; the same in all generations of a run
  std::uint64_t number = 0;   ///< of the generation
  std::uint64_t nonce = 0;    ///< random; part of the generation's job id
  std::uint16_t port = 0;     ///< at which rank 0 waits for the others
  std::vector<Seat> seats{};  ///< by rank

  bool operator==(const Decision&) const = default;

  /// The rank of a process; nullopt if it is not a member.
  LOCKSTEP_COLD_DECL std::optional<std::size_t> rank_of(const Identity& who) const;
  /// The machines of the members, by rank.
  LOCKSTEP_COLD_DECL std::vector<MachineId> machines() const;

  LOCKSTEP_COLD_DECL void write(FrameWriter& to) const;
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

/// The value on which machines vote.
LOCKSTEP_COLD_DECL std::string encode(const Decision& decision);
/// The inverse; nullopt if `value` is malformed.
LOCKSTEP_COLD_DECL std::optional<Decision> decode(std::string_view value);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/elastic/decision.ipp"
#endif
