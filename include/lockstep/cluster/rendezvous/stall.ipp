#pragma once

#include "lockstep/cluster/rendezvous/stall.hpp"

#include <algorithm>

namespace lockstep {

namespace detail {

void StallTimer::poll(const ProgressBoard& board, const ExchangeProgress& exchange,
                      Clock::time_point now, bool on_time) {
  const std::uint64_t notes = board.notes();
  const bool moves = exchange.done != exchange_.done || exchange.moved != exchange_.moved;
  if (notes != notes_ || moves)
    stalled_for_ = milliseconds{0};
  else if (on_time)
    stalled_for_ += whole_milliseconds(now - last_);
  notes_ = notes;
  exchange_ = exchange;
  last_ = now;
}

/// The limit of a rank's phase.
inline milliseconds limit_of(const WorkerProgress& progress, const StallLimits& limits) {
  switch (progress.phase) {
    case Phase::forward:
    case Phase::backward:
    case Phase::reduce:
    case Phase::update:
      return progress.first_step ? limits.idle : limits.stall;
    default:
      return limits.idle;
  }
}

std::optional<Straggler> find_straggler(const std::vector<RankState>& ranks,
                                        const StallLimits& limits) {
  milliseconds longest_wait{0};
  bool busy = false;
  for (const RankState& rank : ranks) {
    if (rank.left) continue;
    busy = busy || rank.progress.phase != Phase::idle;
    if (rank.progress.phase == Phase::reduce)
      longest_wait = std::max(longest_wait, rank.stalled_for);
  }
  // All ranks idle: no training is in progress.
  if (!busy) return std::nullopt;
  std::vector<std::size_t> waiting(ranks.size());  // how many ranks wait for each rank
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (const auto whom = ranks[r].exchange.waits_for; whom && *whom < ranks.size() && *whom != r)
      ++waiting[*whom];
  std::optional<std::size_t> slowest;
  // True if rank a has made less progress than rank b.
  const auto before = [&](std::size_t a, std::size_t b) {
    const RankState &x = ranks[a], &y = ranks[b];
    const bool idle_x = x.progress.phase == Phase::idle, idle_y = y.progress.phase == Phase::idle;
    if (idle_x != idle_y) return idle_x;
    if (x.exchange.done != y.exchange.done) return x.exchange.done < y.exchange.done;
    const bool waits_x = x.exchange.waits_for.has_value(),
               waits_y = y.exchange.waits_for.has_value();
    if (waits_x != waits_y) return waits_y;
    if (x.progress.step != y.progress.step) return x.progress.step < y.progress.step;
    if (x.progress.phase != y.progress.phase) return x.progress.phase < y.progress.phase;
    if (waiting[a] != waiting[b]) return waiting[a] > waiting[b];
    return x.stalled_for > y.stalled_for;
  };
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (!ranks[r].left && (!slowest || before(r, *slowest))) slowest = r;
  const RankState& rank = ranks[*slowest];
  const bool idle = rank.progress.phase == Phase::idle;
  // An idle rank causes no delay until another rank waits for it.
  return Straggler{*slowest, idle ? std::min(rank.stalled_for, longest_wait) : rank.stalled_for,
                   limit_of(rank.progress, limits)};
}

}  // namespace detail

}  // namespace lockstep
