/// \file
/// An update policy for tests, as the proof that the seam holds one: each replica owns a share of
/// the optimizer's buffers (ZeRO's first stage), in one process.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/core/owned_ranges.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/training/step/served.hpp"
#include "lockstep/training/step/updates.hpp"

namespace sharded {

namespace ls = lockstep;

/// The exchanges of ls::Served, where all replicas compute and all own weights.
template <class D>
class Update : public ls::detail::ServedUpdate<D> {
 public:
  explicit Update(const ls::detail::UpdateSite<D>& site)
      : ls::detail::ServedUpdate<D>(site, shares(site)) {}

 private:
  /// Segments are not divided, unless there is only one, that is, no update needs whole parameters.
  static std::vector<ls::Slice> shares(const ls::detail::UpdateSite<D>& site) {
    std::vector<ls::Slice> units;
    if (site.facts.segments.size() > 1)
      for (const ls::detail::UpdateSegment& s : site.facts.segments)
        units.push_back({s.begin, s.end - s.begin});
    return ls::shares_of(site.engine.weights().size(), site.replicas, units);
  }
};

struct Policy {
  template <class D>
  using Replica = Update<D>;
};

/// A strategy with this policy.
template <class S>
struct Sharded : S {
  using update_policy = Policy;
};

}  // namespace sharded
