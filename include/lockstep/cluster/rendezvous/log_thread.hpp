/// \file
/// The lines of the control thread, said in a thread of their own. Invariant: who says a line never
/// waits for the sink, which may be a pipe that nobody reads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/core/config.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep::detail {

/// \code
///   LogThread log([](LogLevel level, std::string_view line) { lockstep::log(level, line); });
///   log.log(LogLevel::info, "waiting for rank 1");
/// \endcode
class LogThread {
 public:
  using Sink = std::function<void(LogLevel, std::string_view)>;

  /// The sink is called by one thread, one line at a time. It must not throw.
  LOCKSTEP_COLD_DECL explicit LogThread(Sink sink);
  LogThread(const LogThread&) = delete;
  LogThread& operator=(const LogThread&) = delete;
  /// Waits a second for what is not yet said. A sink that still waits then is left to itself.
  LOCKSTEP_COLD_DECL ~LogThread();

  /// Of more than `capacity` lines that wait, the newest are counted and left out.
  LOCKSTEP_COLD_DECL void log(LogLevel level, std::string_view line);

  static constexpr std::size_t capacity = 1000;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<LogLevel, std::string>> lines;
    std::size_t dropped = 0;
    bool stopping = false, stopped = false;
    Sink sink;
  };

  LOCKSTEP_COLD_DECL static void run(State& state);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/log_thread.ipp"
#endif
