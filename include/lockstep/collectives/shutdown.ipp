#pragma once

#include "lockstep/collectives/shutdown.hpp"

#include <string>
#include <string_view>
#include <utility>

#include "lockstep/collectives/lost_by_others.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

void throw_shutdown(const Shutdown& why, const char* operation, std::size_t here,
                    bool& threw_mismatch) {
  using Cause = Shutdown::Cause;
  if (why.cause == Cause::dead_link)
    throw LinkFailed(
        operation, why.rank, why.by,
        format_text("no data sent over it was acknowledged for {} ms", why.silence_ms));
  if (why.cause == Cause::corrupt)
    throw LinkFailed(operation, why.rank, why.by,
                     "data arrived that were not sent so (their checksum differs); a network card, "
                     "a cable or memory is faulty, or somebody changes them");
  if (why.cause == Cause::mismatch && !std::exchange(threw_mismatch, true))
    throw UsageError(
        "replica {} calls {}, replica {} calls {}; all replicas must make the same calls in the "
        "same order",
        why.rank, why.theirs.description(), why.by, why.ours.description());
  if (why.cause == Cause::lost && why.rank == here)
    throw LostByOthers(why.rank, "{}: the other replicas have lost this one, replica {}", operation,
                       here);
  const bool names = why.cause == Cause::lost || why.cause == Cause::timed_out;
  const std::string_view reason = why.cause == Cause::timed_out ? "a replica did not arrive in time"
                                  : why.cause == Cause::lost    ? "a replica was lost"
                                  : why.cause == Cause::mismatch ? "the replicas' calls differed"
                                                                 : "another replica failed";
  throw CollectiveAborted(why.rank, "{}: replica {} stopped because {}{}", operation, here, reason,
                          names ? format_text(" ({})", why.rank) : std::string());
}

}  // namespace lockstep::detail
