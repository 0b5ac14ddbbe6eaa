/// \file
/// Phases of training that a process can be in.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep {

/// The current phase of a rank, in the order of a step.
enum class Phase : std::uint8_t {
  idle,  ///< outside of lockstep's loops
  data,
  forward,
  backward,
  reduce,
  update,
  callback,
  checkpoint,
  evaluation,
};
inline constexpr Phase last_phase = Phase::evaluation;

inline const char* to_string(Phase phase) {
  constexpr std::array names{"no step", "data",       "forward",    "backward",  "reduce",
                             "update",  "a callback", "checkpoint", "evaluation"};
  return names[static_cast<std::size_t>(phase)];
}

}  // namespace lockstep
