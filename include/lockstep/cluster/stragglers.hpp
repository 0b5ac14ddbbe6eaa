/// \file
/// Where the ranks of a job spend their time. Invariant: each moment between two calls counts for
/// one phase, that which was entered last.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/core/phase.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep {

/// Seconds in each phase.
using PhaseTimes = std::array<double, static_cast<std::size_t>(last_phase) + 1>;

/// Adds up the time of one rank in each phase.
/// \code
///   lockstep::PhaseClock clock;
///   clock.enter(lockstep::Phase::forward);
///   lockstep::PhaseTimes since_then = clock.take();
/// \endcode
class PhaseClock {
 public:
  using Clock = std::chrono::steady_clock;

  void enter(Phase phase, Clock::time_point now = Clock::now()) {
    spent_[static_cast<std::size_t>(phase_)] += std::chrono::duration<double>(now - since_).count();
    phase_ = phase;
    since_ = now;
  }
  /// What was spent since the last call, and begins anew.
  PhaseTimes take(Clock::time_point now = Clock::now()) {
    enter(phase_, now);
    const PhaseTimes result = spent_;
    spent_ = {};
    return result;
  }

 private:
  Phase phase_ = Phase::idle;
  Clock::time_point since_ = Clock::now();
  PhaseTimes spent_{};
};

namespace detail {

/// One line a rank and one column a phase that anybody was in. A rank waits for the others in
/// `reduce`, so the straggler is who spends the most outside of it.
inline std::string straggler_table(int epoch, std::span<const PhaseTimes> ranks) {
  constexpr auto idle = static_cast<std::size_t>(Phase::idle),
                 reduce = static_cast<std::size_t>(Phase::reduce);
  std::vector<std::size_t> columns;
  for (std::size_t p = 0; p < std::tuple_size_v<PhaseTimes>; ++p)
    if (p != idle &&
        std::any_of(ranks.begin(), ranks.end(), [&](const PhaseTimes& t) { return t[p] > 0; }))
      columns.push_back(p);
  std::string table = text({"epoch ", epoch + 1, ", seconds of each rank:\n  rank"});
  for (const std::size_t p : columns) table += print("%12s", to_string(static_cast<Phase>(p)));
  table += "   own work\n";
  std::vector<double> own;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    table += print("%6zu", r);
    double work = 0;
    for (const std::size_t p : columns) {
      table += print("%12.3f", ranks[r][p]);
      if (p != reduce) work += ranks[r][p];
    }
    table += print("%11.3f\n", work);
    own.push_back(work);
  }
  const auto slowest = std::max_element(own.begin(), own.end()) - own.begin();
  const double longest = own[static_cast<std::size_t>(slowest)];
  std::nth_element(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(own.size() / 2),
                   own.end());
  const double median = own[own.size() / 2];
  table += text({"  rank ", slowest, " works longest"});
  if (median > 0) table += print(", %.2f times the median", longest / median);
  return table;
}

}  // namespace detail
}  // namespace lockstep
