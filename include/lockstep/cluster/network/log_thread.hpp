/// \file
/// A thread that writes the log lines of the control thread. Invariant: `log` never waits for the
/// sink, which may be a pipe that nobody reads.
#pragma once

#include <chrono>
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

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process/threads.hpp"

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
  [[gnu::cold]] explicit LogThread(Sink sink) : state_(std::make_shared<State>()) {
    state_->sink = std::move(sink);
    thread_ = start_thread("rendezvous", [state = state_] { run(*state); });
  }
  LogThread(const LogThread&) = delete;
  LogThread& operator=(const LogThread&) = delete;
  /// Waits at most a second for the queued lines. If the sink is still blocked then, the thread is
  /// detached and the lines are dropped.
  [[gnu::cold]] ~LogThread() {
    std::unique_lock lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
    const bool stopped =
        state_->changed.wait_for(lock, std::chrono::seconds(1), [&] { return state_->stopped; });
    if (!stopped) state_->lines.clear();  // drop the rest
    lock.unlock();
    if (stopped)
      thread_.join();
    else
      thread_.detach();
  }

  /// Queues a line. While the queue is full, new lines are counted and dropped.
  [[gnu::cold]] void log(LogLevel level, std::string_view line) {
    {
      const std::scoped_lock lock(state_->mutex);
      if (state_->lines.size() < capacity)
        state_->lines.emplace_back(level, line);
      else
        ++state_->dropped;
    }
    state_->changed.notify_all();
  }

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
  [[gnu::cold]] static void run(State& state) {
    std::unique_lock lock(state.mutex);
    while (true) {
      state.changed.wait(lock, [&] { return state.stopping || !state.lines.empty(); });
      if (state.lines.empty()) break;
      const auto [level, line] = std::move(state.lines.front());
      state.lines.pop_front();
      if (state.lines.empty() && state.dropped > 0)
        state.lines.emplace_back(LogLevel::warning,
                                 format_text("{} lines were dropped; the log is read too slowly",
                                             std::exchange(state.dropped, 0)));
      lock.unlock();
      state.sink(level, line);
      lock.lock();
    }
    state.stopped = true;
    state.changed.notify_all();
  }

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace lockstep::detail
