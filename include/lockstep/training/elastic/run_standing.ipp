#pragma once

#include "lockstep/training/elastic/run_standing.hpp"

#include <cstring>
#include <tuple>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

std::size_t donor_of(std::span<const RunStanding> all) {
  const auto merit = [](const RunStanding& s) {
    return std::tuple(s.call, s.has_begun, s.boundaries);
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < all.size(); ++i)
    if (merit(all[i]) > merit(all[best])) best = i;
  return best;
}

std::vector<RunStanding> read_standings(const std::vector<std::vector<std::byte>>& all) {
  std::vector<RunStanding> standings(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].size() != sizeof(RunStanding))
      throw Error(
          "elastic: worker {} sent {} bytes as its standing; use the same version of "
          "lockstep on all workers",
          i, all[i].size());
    std::memcpy(&standings[i], all[i].data(), sizeof(RunStanding));
  }
  return standings;
}

}  // namespace lockstep::detail
