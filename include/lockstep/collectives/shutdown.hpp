/// \file
/// Why a group of processes ended its operations, as one process notifies the others.
#pragma once

#include <cstdint>
#include <type_traits>

#include "lockstep/collectives/collective_call.hpp"

namespace lockstep::detail {

/// The first cause that a process saw; the same in all processes that heard of it.
struct Shutdown {
  enum class Cause : std::uint32_t { none, aborted, lost, timed_out, mismatch, dead_link, corrupt };
  Cause cause = Cause::none;
  std::uint32_t rank = 0;  ///< the peer that was lost or waited for, or whose data were wrong
  std::uint32_t by = 0;    ///< the rank that detected it
  std::uint32_t zero = 0;
  CollectiveCall theirs{}, ours{};  ///< the calls of `rank` and `by`, if they differ
};
static_assert(std::has_unique_object_representations_v<Shutdown>);

}  // namespace lockstep::detail
