/// \file
/// Gloo as the data plane of a job.
#pragma once

#include <string_view>

#include "lockstep/core/config.hpp"
#include "lockstep/strategies/data_plane.hpp"

namespace lockstep {

/// All workers exchange over Gloo's TCP connections, also those of one machine. Authenticated when
/// they connect, but not encrypted, and a stranger who sends a message of Gloo's at that moment ends
/// the process; for trusted networks. Needs lockstep::gloo.
/// \code
///   ls::MultiWorkerMirrored<ls::Cpu, ls::Gloo>{}
/// \endcode
struct Gloo {
  static constexpr std::string_view name = "gloo";
  LOCKSTEP_COLD_DECL static JobGroups connect(const JobLinks& links);
};
static_assert(DataPlane<Gloo>);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/strategies/gloo_plane.ipp"
#endif
