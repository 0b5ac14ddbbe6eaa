#pragma once

#include "lockstep/cluster/rendezvous/stragglers.hpp"

#include <algorithm>
#include <vector>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/median.hpp"

namespace lockstep {

void PhaseClock::enter(Phase phase, Clock::time_point now) {
  spent_[static_cast<std::size_t>(phase_)] += std::chrono::duration<double>(now - since_).count();
  phase_ = phase;
  since_ = now;
}

PhaseTimes PhaseClock::read_and_reset(Clock::time_point now) {
  enter(phase_, now);
  const PhaseTimes result = spent_;
  spent_ = {};
  return result;
}

namespace detail {

std::string straggler_table(int epoch, std::span<const PhaseTimes> ranks) {
  constexpr auto idle = static_cast<std::size_t>(Phase::idle),
                 reduce = static_cast<std::size_t>(Phase::reduce);
  std::vector<std::size_t> columns;
  for (std::size_t p = 0; p < std::tuple_size_v<PhaseTimes>; ++p)
    if (p != idle &&
        std::any_of(ranks.begin(), ranks.end(), [&](const PhaseTimes& t) { return t[p] > 0; }))
      columns.push_back(p);
  std::string table = format_text("epoch {}, seconds per rank:\n  rank", epoch + 1);
  for (const std::size_t p : columns)
    table += format_text("{:>12}", to_string(static_cast<Phase>(p)));
  table += "   own work\n";
  std::vector<double> own;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    table += format_text("{:6}", r);
    double work = 0;
    for (const std::size_t p : columns) {
      table += format_text("{:12.3f}", ranks[r][p]);
      if (p != reduce) work += ranks[r][p];
    }
    table += format_text("{:11.3f}\n", work);
    own.push_back(work);
  }
  const auto slowest = std::max_element(own.begin(), own.end());
  const double longest = *slowest;
  table += format_text("  rank {} works longest", slowest - own.begin());
  own.erase(slowest);
  // Without the slowest: with two ranks the median of both would often be the slowest itself.
  const double others = own.empty() ? 0 : median(own);
  if (others > 0)
    table +=
        format_text(", {:.2f} times {}", longest / others,
                    own.size() == 1 ? "as long as the other rank" : "the median of the others");
  return table;
}

}  // namespace detail

}  // namespace lockstep
