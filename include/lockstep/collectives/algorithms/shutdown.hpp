/// \file
/// Why a group of processes ended its operations, as one process notifies the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include "lockstep/core/chrono.hpp"

#include "lockstep/collectives/algorithms/collective_call.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// The first cause that a process saw; the same in all processes that heard of it. Ranks are those
/// of the job.
struct Shutdown {
  /// `left`: the process leaves without a failure.
  enum class Cause : std::uint32_t {
    none,
    aborted,
    lost,
    timed_out,
    mismatch,
    dead_link,
    corrupt,
    left
  };
  Cause cause = Cause::none;
  std::uint32_t rank = 0;        ///< the peer that was lost or waited for, or whose data were wrong
  std::uint32_t by = 0;          ///< the rank that detected it
  std::uint32_t silence_ms = 0;  ///< after which a link was considered dead
  CollectiveCall theirs{}, ours{};  ///< the calls of `rank` and `by`, if they differ
};
static_assert(std::has_unique_object_representations_v<Shutdown>);

/// Throws the error with which rank `here` ends `operation`. Calls that differ are a UsageError in
/// the first operation that fails, and CollectiveAborted in later ones, as `threw_mismatch` records.
[[noreturn]] LOCKSTEP_COLD_DECL void throw_shutdown(const Shutdown& why, const char* operation,
                                                    std::size_t here, bool& threw_mismatch);

/// \throws UsageError: the replica `rank` calls `theirs`, the replica `by` calls `ours`.
[[noreturn]] LOCKSTEP_COLD_DECL void throw_mismatch(std::size_t rank, const CollectiveCall& theirs,
                                                    std::size_t by, const CollectiveCall& ours);

/// \throws CollectiveTimeout, with `peer`: replica `here` waited this long in `operation` for
/// `missing`, which have begun the operation if they have `arrived`.
[[noreturn]] LOCKSTEP_COLD_DECL void throw_late(std::optional<std::size_t> peer,
                                                const char* operation, std::size_t here,
                                                std::chrono::nanoseconds waited,
                                                std::span<const std::size_t> missing, bool arrived);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/algorithms/shutdown.ipp"
#endif
