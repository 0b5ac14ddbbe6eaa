#include "speaker.hpp"

#include <lockstep/lockstep.hpp>

void library_logs() { lockstep::log(lockstep::LogLevel::warning, "from the library"); }

bool library_is_refused_a_signal_stop() {
  try {
    const lockstep::SignalStop stop;
    return false;
  } catch (const lockstep::UsageError&) {
    return true;
  }
}

void library_throws_usage_error() { throw lockstep::UsageError("from the library"); }
