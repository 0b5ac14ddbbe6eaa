/// \file
/// The process that has started this one and its siblings, for launchers whose variables name no job.
#pragma once

#include <optional>
#include <string>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// "4711-8675309", process id and start time: the nearest ancestor without `variable`, which the
/// launcher sets in each of its processes, also through shells and wrappers in between. Nullopt if
/// /proc does not show it, or if `process` was not started with the variable.
LOCKSTEP_COLD_DECL std::optional<std::string> launcher_process(const std::string& variable,
                                                               std::string process = "self");

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/launcher_process.ipp"
#endif
