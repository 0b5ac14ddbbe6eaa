#pragma once

#include "lockstep/collectives/algorithms/shutdown.hpp"

#include <string>
#include <string_view>
#include <utility>

#include "lockstep/collectives/algorithms/lost_by_others.hpp"
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
    throw_mismatch(why.rank, why.theirs, why.by, why.ours);
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

void throw_mismatch(std::size_t rank, const CollectiveCall& theirs, std::size_t by,
                    const CollectiveCall& ours) {
  throw UsageError(
      "replica {} calls {}, replica {} calls {}; all replicas must make the same calls in the same "
      "order",
      rank, theirs.description(), by, ours.description());
}

void throw_late(std::optional<std::size_t> peer, const char* operation, std::size_t here,
                std::chrono::nanoseconds waited, std::span<const std::size_t> missing,
                bool arrived) {
  std::string who;
  for (const std::size_t rank : missing) who += format_text("{}{}", who.empty() ? "" : ", ", rank);
  who = who.empty() ? "the last replica to arrive" : "replica " + who;
  const std::string what = format_text(
      "{}: replica {} waited {} ms for {}{}; it hangs, or it needs a longer timeout", operation,
      here, std::chrono::duration_cast<std::chrono::milliseconds>(waited).count(), who,
      arrived ? ", which arrived and then stopped" : ", which did not arrive");
  if (peer) throw CollectiveTimeout(*peer, "{}", what);
  throw CollectiveTimeout("{}", what);
}

}  // namespace lockstep::detail
