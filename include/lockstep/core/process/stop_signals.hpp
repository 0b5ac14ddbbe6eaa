/// \file
/// The signals that ask a process to end in order (POSIX). Invariant: each has the exit code
/// 128 + n, on every process of its job.
#pragma once

#include <array>
#include <csignal>
#include <string_view>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

/// All that a process may handle, in the order in which the workers of a job exchange them.
inline constexpr std::array<int, 5> stop_signals{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

/// Those that a process handles: SIGINT, SIGTERM, SIGHUP, and what `more`, the value of
/// LOCKSTEP_STOP_SIGNALS, names: USR1, USR2 or both, separated by a comma. Null names none.
/// \throws UsageError for any other word.
[[gnu::cold]] inline std::vector<int> handled_signals(const char* more) {
  std::vector<int> result{SIGINT, SIGTERM, SIGHUP};
  for (std::string_view rest = more != nullptr ? more : ""; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(word.size() + (word.size() < rest.size() ? 1 : 0));
    const std::string_view name = word.substr(word.starts_with("SIG") ? 3 : 0);
    if (name != "USR1" && name != "USR2")
      throw UsageError(
          "LOCKSTEP_STOP_SIGNALS: {} is not USR1 or USR2; write one of them, or USR1,USR2",
          quote(word));
    result.push_back(name == "USR1" ? SIGUSR1 : SIGUSR2);
  }
  return result;
}

}  // namespace lockstep::detail
