/// \file
/// A thread that writes the log lines of the control thread. Invariant: `log` never waits for the
/// sink, which may be a pipe that nobody reads.
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

/// A bounded queue of lines and the thread that passes them to the sink.
/// \code
///   LogThread log([](LogLevel level, std::string_view line) { lockstep::log(level, line); });
///   log.log(LogLevel::info, "waiting for rank 1");
/// \endcode
class LogThread {
 public:
  using Sink = std::function<void(LogLevel, std::string_view)>;

  /// The thread calls `sink` for one line at a time. The sink must not throw.
  LOCKSTEP_COLD_DECL explicit LogThread(Sink sink);
  LogThread(const LogThread&) = delete;
  LogThread& operator=(const LogThread&) = delete;
  /// Waits at most a second for the queued lines. If the sink is still blocked then, the thread is
  /// detached and the lines are dropped.
  LOCKSTEP_COLD_DECL ~LogThread();

  /// Queues a line. While the queue is full, new lines are counted and dropped.
  LOCKSTEP_COLD_DECL void log(LogLevel level, std::string_view line);

  /// Lines in the queue.
  static constexpr std::size_t capacity = 1000;

 private:
  /// Shared with the thread, which may outlive this object.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<LogLevel, std::string>> lines;
    std::size_t dropped = 0;
    bool stopping = false, stopped = false;
    Sink sink;
  };

  /// The body of the thread.
  LOCKSTEP_COLD_DECL static void run(State& state);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/log_thread.ipp"
#endif
