#pragma once

#include "lockstep/core/stop_signals.hpp"

#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

std::vector<int> handled_signals(const char* more) {
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
