#pragma once

#include "lockstep/cluster/rendezvous/log_thread.hpp"

#include <chrono>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/threads.hpp"

namespace lockstep::detail {

LogThread::LogThread(Sink sink) : state_(std::make_shared<State>()) {
  state_->sink = std::move(sink);
  thread_ = start_thread("rendezvous", [state = state_] { run(*state); });
}

LogThread::~LogThread() {
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

void LogThread::log(LogLevel level, std::string_view line) {
  {
    const std::scoped_lock lock(state_->mutex);
    if (state_->lines.size() < capacity)
      state_->lines.emplace_back(level, line);
    else
      ++state_->dropped;
  }
  state_->changed.notify_all();
}

void LogThread::run(State& state) {
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

}  // namespace lockstep::detail
