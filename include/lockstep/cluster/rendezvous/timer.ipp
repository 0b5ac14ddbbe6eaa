#pragma once

#include "lockstep/cluster/rendezvous/timer.hpp"

#include <asio/post.hpp>
#include <utility>

namespace lockstep::detail {

void Timer::at(Clock::time_point time, std::function<void()> action) {
  timer_.expires_at(time);
  timer_.async_wait([action = std::move(action)](const asio::error_code& error) {
    if (!error) action();
  });
}

void Timer::after(Clock::duration time, std::function<void()> action) {
  at(Clock::now() + time, std::move(action));
}

void Timer::cancel() { timer_.cancel(); }

void post(asio::io_context& io, std::function<void()> action) { asio::post(io, std::move(action)); }

}  // namespace lockstep::detail
