/// \file
/// Moves parts of flat buffers to the processes that own them in a new generation. Invariants: all
/// processes derive the same plan from the same message; each element comes from one process, which
/// has its newest version; nothing is sent that no process lacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/owned_ranges.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/training/step/any_job.hpp"

namespace lockstep::detail {

/// Elements that a process has, as they were after an update. Updates are counted by the caller.
struct HeldRange {
  Slice range{};
  std::uint64_t version = 0;
  bool operator==(const HeldRange&) const = default;
};

/// The elements that one process brings to an exchange, and those that it must have afterwards.
struct RangeOffer {
  std::vector<HeldRange> has{};  ///< disjoint
  Ranges needs{};
};

/// A process lacks elements that no process has.
class RangeLost : public Error {
 public:
  explicit RangeLost(Slice lost)
      : Error("elastic: no process has the elements {} to {} of the weights", lost.first,
              lost.first + lost.count),
        range(lost) {}
  const Slice range;
};

/// Elements [range) that the process `from` sends, because those in `to` lack their version.
struct RangeTransfer {
  Slice range{};
  std::uint64_t version = 0;
  std::size_t from = 0;
  std::vector<bool> to{};  ///< by process
  bool operator==(const RangeTransfer&) const = default;
};

/// The transfers after which each process has the elements that it needs in the highest version that
/// any process has. Elements that nobody lacks are not listed. \throws RangeLost
LOCKSTEP_COLD_DECL std::vector<RangeTransfer> plan_transfers(std::span<const RangeOffer> offers);

/// The places of this process' buffers, each with all elements: weights, slots. Null where the process
/// neither has nor needs any. All processes have as many.
struct RangeBuffers {
  std::vector<const std::byte*> from;  ///< what `has` describes
  std::vector<std::byte*> to;          ///< receives what `needs` describes; may be the same
  std::size_t element = 1;             ///< bytes
};

/// Makes each process have what it needs in the highest version that any has. Collective.
/// \returns the versions of the elements that this process needs. \throws RangeLost, in all processes;
/// PeerLost, after which the elements in `to` are undefined.
/// \code
///   // after a loss: the owners of the last generation send their ranges to those of the next one
///   const RangeOffer mine{.has = {{owned, step}}, .needs = policy.owned()};
///   exchange_ranges(replicas, mine, {.from = kept, .to = buffers, .element = sizeof(T)});
/// \endcode
LOCKSTEP_COLD_DECL std::vector<HeldRange> exchange_ranges(AnyJob& job, const RangeOffer& mine,
                                                          const RangeBuffers& buffers);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/elastic/range_exchange.ipp"
#endif
