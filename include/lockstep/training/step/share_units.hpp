/// \file
/// The sizes of an optimizer's buffers, parameter by parameter, for their division among replicas.
/// Invariant: the sum of all units is what one device would hold.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/training/step/balanced_shares.hpp"
#include "lockstep/training/step/updates.hpp"

namespace lockstep::detail {

/// The segments of an update with the elements that all buffers have for them. Those that an update
/// changes element by element are divisible, unless norms of parameters are clipped.
[[gnu::cold]] inline std::vector<ShareUnit> share_units(const UpdateFacts& facts) {
  std::vector<ShareUnit> units;
  for (const UpdateSegment& s : facts.segments) {
    const std::size_t size = s.end - s.begin;
    ShareUnit unit{{s.begin, size}, (facts.slot_count - facts.own_slots) * size};
    for (std::size_t k = 0; k < facts.own_slots; ++k) unit.cost += s.elements_of(k);
    unit.is_divisible = s.is_by_elements && !facts.options.clips_by_norm();
    units.push_back(unit);
  }
  return units;
}

}  // namespace lockstep::detail
