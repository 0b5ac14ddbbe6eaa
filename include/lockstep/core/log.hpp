/// \file
/// The library's log, the only output apart from the progress callback. Default sink: one line per
/// message on stderr.
#pragma once

#include <cstdio>
#include <functional>
#include <string_view>

#include "lockstep/core/config.hpp"

namespace lockstep {

enum class LogLevel { info, warning, error };

/// Receives the messages, one at a time, from any thread. Must not throw.
using LogSink = std::function<void(LogLevel, std::string_view)>;

namespace detail {}  // namespace detail

/// Replaces the sink and returns the previous one. An empty sink silences the library.
LOCKSTEP_DECL LogSink set_log(LogSink sink);

/// Sends `text` to the sink.
LOCKSTEP_DECL void log(LogLevel level, std::string_view text);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/log.ipp"
#endif
