/// \file
/// The choice of the rank that proposes the next generation, and of its members. Pure functions.
/// Invariants: the survivors of a generation keep a quorum of the next one without its newcomers,
/// so that newcomers which fail cannot end the job.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <tuple>
#include <vector>

#include "lockstep/cluster/elastic/decision.hpp"
#include "lockstep/cluster/elastic/quorum.hpp"

namespace lockstep::detail {

/// The state of a member, as seen by another one that ends the generation.
enum class Presence : std::uint8_t {
  unknown,  ///< has not answered yet
  busy,     ///< answers, but has not ended the generation
  ready,    ///< has ended it too
  silent,   ///< has not answered for the silence timeout
  gone      ///< its process does not exist any more, or is not accepted
};

/// The rank that proposes: the lowest one that may be alive, since a busy one is waited for.
/// Without patience, the lowest that is ready. Nullopt if there is none.
[[gnu::cold]] inline std::optional<std::size_t> proposing_rank(const std::vector<Presence>& members,
                                                               bool patient) {
  for (std::size_t r = 0; r < members.size(); ++r) {
    const bool may_be_alive = members[r] == Presence::unknown || members[r] == Presence::busy;
    if (members[r] == Presence::ready || (patient && may_be_alive)) return r;
  }
  return std::nullopt;
}

/// True if no member has to be waited for.
[[gnu::cold]] inline bool all_known(const std::vector<Presence>& members, bool patient) {
  return std::none_of(members.begin(), members.end(), [&](Presence presence) {
    return presence == Presence::unknown || (patient && presence == Presence::busy);
  });
}

/// The largest number of workers up to `available` that the job accepts; 0: none. `fits` may be
/// empty.
[[gnu::cold]] inline std::size_t accepted_size(std::size_t available, std::size_t min_workers,
                                               const std::function<bool(std::size_t)>& fits) {
  std::size_t n = available;
  while (n > 0 && n >= min_workers && fits && !fits(n)) --n;
  return n >= min_workers ? n : 0;
}

/// The conditions on the seats of a generation. Only workers count; in a job without servers all
/// processes are workers.
struct SeatRules {
  std::size_t min_workers = 1;
  std::function<bool(std::size_t)>
      fits{};  ///< whether that number of workers may train; may be empty
  DescribedTasks tasks{};

  [[gnu::cold]] std::size_t workers_in(const std::vector<Seat>& seats) const {
    return static_cast<std::size_t>(std::count_if(
        seats.begin(), seats.end(), [&](const Seat& seat) { return tasks.is_worker(seat); }));
  }
  /// The number of workers that the job accepts of those that are available; 0: none.
  [[gnu::cold]] std::size_t accepted(std::size_t available) const {
    return accepted_size(available, min_workers, fits);
  }
};

/// Orders the seats of a job with servers so that the ranks of each role are contiguous, and the
/// first seat stays, since its process proposes and the others meet at its port:
///
///     | the first seat's role | workers | servers | chief |    each by described index
[[gnu::cold]] inline void order_by_role(std::vector<Seat>& seats, const DescribedTasks& tasks) {
  if (seats.empty() || tasks.servers.count == 0) return;
  const SeatRole first = tasks.role_of(seats.front());
  std::sort(seats.begin() + 1, seats.end(), [&](const Seat& a, const Seat& b) {
    const auto key = [&](const Seat& seat) {
      const SeatRole role = tasks.role_of(seat);
      return std::tuple(role != first, role, seat.who.index);
    };
    return key(a) < key(b);
  });
}

/// The seats of the next generation: `survivors` in their order, then `newcomers` in theirs; fewer
/// if the number is not accepted. With servers they are ordered by role. Empty if there are too few
/// workers.
[[gnu::cold]] inline std::vector<Seat> assemble(const std::vector<Seat>& survivors,
                                                const std::vector<Seat>& newcomers,
                                                const SeatRules& rules) {
  std::vector<Seat> seats = survivors;
  const auto survivors_decide = [&] {
    Decision trial;
    trial.seats = seats;
    const Quorum quorum(trial.machines());
    std::vector<bool> votes(quorum.size());
    for (std::size_t r = 0; r < survivors.size(); ++r) votes[quorum.machine_of(r)] = true;
    return quorum.reached(votes);
  };
  for (const Seat& newcomer : newcomers) {
    seats.push_back(newcomer);
    if (!survivors_decide()) seats.pop_back();
  }
  const std::size_t accepted = rules.accepted(rules.workers_in(seats));
  if (accepted == 0) return {};
  std::size_t workers = 0;
  std::erase_if(
      seats, [&](const Seat& seat) { return rules.tasks.is_worker(seat) && ++workers > accepted; });
  order_by_role(seats, rules.tasks);
  return seats;
}

/// True if `next` may follow `now`: the same run, the next number, and survivors that have not
/// changed.
[[gnu::cold]] inline bool may_follow(const Decision& now, const Decision& next) {
  if (next.run != now.run || next.number != now.number + 1 || next.port == 0) return false;
  return std::all_of(next.seats.begin(), next.seats.end(), [&](const Seat& seat) {
    if (seat.former == Seat::newcomer) return !now.rank_of(seat.who);
    return seat.former < now.seats.size() && now.seats[seat.former].who == seat.who &&
           now.seats[seat.former].machine == seat.machine;
  });
}

}  // namespace lockstep::detail
