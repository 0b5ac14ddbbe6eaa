/// \file
/// The lines of the control thread, said in a thread of their own. Invariant: who says a line never
/// waits for the sink, which may be a pipe that nobody reads.
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

#include "lockstep/core/log.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/core/threads.hpp"

namespace lockstep::detail {

/// \code
///   LogThread log([](LogLevel level, std::string_view line) { lockstep::log(level, line); });
///   log.say(LogLevel::info, "waiting for rank 1");
/// \endcode
class LogThread {
 public:
  using Sink = std::function<void(LogLevel, std::string_view)>;

  /// The sink is called by one thread, one line at a time. It must not throw.
  explicit LogThread(Sink sink) : state_(std::make_shared<State>()) {
    state_->sink = std::move(sink);
    thread_ = start_thread("rendezvous", [state = state_] { run(*state); });
  }
  LogThread(const LogThread&) = delete;
  LogThread& operator=(const LogThread&) = delete;
  /// Waits a second for what is not yet said. A sink that still waits then is left to itself.
  ~LogThread() {
    std::unique_lock lock(state_->mutex);
    state_->ends = true;
    state_->changed.notify_all();
    const bool ended =
        state_->changed.wait_for(lock, std::chrono::seconds(1), [&] { return state_->ended; });
    if (!ended) state_->lines.clear();  // nothing is said any more
    lock.unlock();
    if (ended)
      thread_.join();
    else
      thread_.detach();
  }

  /// Of more than `capacity` lines that wait, the newest are counted and left out.
  void say(LogLevel level, std::string_view line) {
    {
      const std::scoped_lock lock(state_->mutex);
      if (state_->lines.size() < capacity)
        state_->lines.emplace_back(level, line);
      else
        ++state_->left_out;
    }
    state_->changed.notify_all();
  }

  static constexpr std::size_t capacity = 1000;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<LogLevel, std::string>> lines;
    std::size_t left_out = 0;
    bool ends = false, ended = false;
    Sink sink;
  };

  static void run(State& state) {
    std::unique_lock lock(state.mutex);
    while (true) {
      state.changed.wait(lock, [&] { return state.ends || !state.lines.empty(); });
      if (state.lines.empty()) break;
      const auto [level, line] = std::move(state.lines.front());
      state.lines.pop_front();
      if (state.lines.empty() && state.left_out > 0)
        state.lines.emplace_back(LogLevel::warning,
                                 text({std::exchange(state.left_out, 0),
                                       " more lines were left out; the log is read too slowly"}));
      lock.unlock();
      state.sink(level, line);
      lock.lock();
    }
    state.ended = true;
    state.changed.notify_all();
  }

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace lockstep::detail
