/// \file
/// The signals that ask a process to end in order (POSIX). Invariant: each has the exit code
/// 128 + n, on every process of its job.
#pragma once

#include <array>
#include <csignal>
#include <vector>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// All that a process may handle, in the order in which the workers of a job exchange them.
inline constexpr std::array<int, 5> stop_signals{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

/// Those that a process handles: SIGINT, SIGTERM, SIGHUP, and what `more`, the value of
/// LOCKSTEP_STOP_SIGNALS, names: USR1, USR2 or both, separated by a comma. Null names none.
/// \throws UsageError for any other word.
LOCKSTEP_COLD_DECL std::vector<int> handled_signals(const char* more);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/stop_signals.ipp"
#endif
