/// \file
/// Progress of a rank in the exchanges of its job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace lockstep {

/// Progress of one rank.
struct ExchangeProgress {
  /// Number of finished parts of exchanges. All ranks exchange the same parts in the same order, so
  /// the rank with the smallest number is the slowest.
  std::uint64_t done = 0;
  std::optional<std::size_t> waits_for{};  ///< the rank whose part is pending
  /// Changes whenever data of an exchange move. Known to its own process only.
  std::uint64_t moved = 0;
  bool operator==(const ExchangeProgress&) const = default;
};

}  // namespace lockstep
