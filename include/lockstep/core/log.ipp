#pragma once

#include "lockstep/core/log.hpp"

#include <cstdio>
#include <mutex>
#include <string>
#include <utility>

#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

struct LogState {
  std::mutex mutex;
  LogSink sink = [](LogLevel level, std::string_view text) {
    const char* kind = level == LogLevel::error     ? "error: "
                       : level == LogLevel::warning ? "warning: "
                                                    : "";
    std::fputs(format_text("lockstep: {}{}\n", kind, text).c_str(), stderr);
  };
};

/// One instance per process. Default visibility makes shared libraries with hidden symbols share
/// it. Rename the function when the layout of LogState changes: the libraries may contain different
/// versions of lockstep.
[[gnu::visibility("default")]] inline LogState& log_state() {
  static LogState state;
  return state;
}

}  // namespace lockstep::detail

namespace lockstep {

LogSink set_log(LogSink sink) {
  auto& state = detail::log_state();
  const std::scoped_lock lock(state.mutex);
  return std::exchange(state.sink, std::move(sink));
}

void log(LogLevel level, std::string_view text) {
  auto& state = detail::log_state();
  const std::scoped_lock lock(state.mutex);
  if (state.sink) state.sink(level, text);
}

}  // namespace lockstep
