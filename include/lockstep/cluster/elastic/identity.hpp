/// \file
/// The identities of the processes and machines of an elastic job.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

namespace lockstep::detail {

/// A process: its index in the cluster description, and a random number, since a process that
/// restarts at the same address is another one.
struct Identity {
  std::uint32_t index = 0;
  std::uint64_t incarnation = 0;
  auto operator<=>(const Identity&) const = default;
};

/// The folder in which the processes of a machine keep their votes: a random number in that folder,
/// so that the votes and the machine's identity can only vanish together.
using MachineId = std::array<std::uint8_t, 16>;

}  // namespace lockstep::detail
