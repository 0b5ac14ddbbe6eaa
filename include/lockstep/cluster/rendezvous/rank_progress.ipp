#pragma once

#include "lockstep/cluster/rendezvous/rank_progress.hpp"

namespace lockstep {

namespace detail {

void ProgressBoard::note(const WorkerProgress& p) {
  state_.store(p.step << 16 | std::uint64_t{static_cast<std::uint8_t>(p.phase)} << 1 |
                   std::uint64_t{p.first_step},
               std::memory_order_relaxed);
  notes_.store(notes_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

WorkerProgress ProgressBoard::read() const {
  const std::uint64_t state = state_.load(std::memory_order_relaxed);
  return {state >> 16, static_cast<Phase>(state >> 1 & 0xFF), (state & 1) != 0};
}

}  // namespace detail

}  // namespace lockstep
