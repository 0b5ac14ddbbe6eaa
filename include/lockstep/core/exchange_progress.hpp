/// \file
/// How far a rank has come in the exchanges of its job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace lockstep {

/// How far one rank has come.
struct ExchangeProgress {
  /// The parts of exchanges that are done. All ranks exchange the same in the same order, so who
  /// has done fewer is behind.
  std::uint64_t done = 0;
  std::optional<std::size_t> waits_for{};  ///< the rank whose part it waits for
  bool operator==(const ExchangeProgress&) const = default;
};

}  // namespace lockstep
