/// \file
/// The choice of the rank that proposes the next generation, and of its members. Pure functions.
/// Invariants: the survivors of a generation keep a quorum of the next one without its newcomers,
/// so that newcomers which fail cannot end the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lockstep/cluster/elastic/decision.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// The state of a member, as seen by another one that ends the generation.
enum class Presence : std::uint8_t {
  unknown,  ///< has not answered yet
  busy,     ///< answers, but has not ended the generation
  ready,    ///< has ended it too
  silent,   ///< has not answered for the silence timeout
  gone      ///< its process does not exist any more, or is not accepted
};

/// The rank that proposes: the lowest one that may be alive, since a busy one is waited for.
/// Without patience, the lowest that is ready. Nullopt if there is none.
LOCKSTEP_COLD_DECL std::optional<std::size_t> proposing_rank(const std::vector<Presence>& members,
                                                             bool patient);

/// True if no member has to be waited for.
LOCKSTEP_COLD_DECL bool all_known(const std::vector<Presence>& members, bool patient);

/// The largest number of workers up to `available` that the job accepts; 0: none. `fits` may be
/// empty.
LOCKSTEP_COLD_DECL std::size_t accepted_size(std::size_t available, std::size_t min_workers,
                                             const std::function<bool(std::size_t)>& fits);

/// The seats of the next generation: `survivors` in their order, then `newcomers` in theirs; fewer
/// if the number is not accepted. Empty if there are too few.
LOCKSTEP_COLD_DECL std::vector<Seat> assemble(const std::vector<Seat>& survivors,
                                              const std::vector<Seat>& newcomers,
                                              std::size_t min_workers,
                                              const std::function<bool(std::size_t)>& fits);

/// True if `next` may follow `now`: the same run, the next number, and survivors that have not
/// changed.
LOCKSTEP_COLD_DECL bool may_follow(const Decision& now, const Decision& next);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/elastic/assembly.ipp"
#endif
