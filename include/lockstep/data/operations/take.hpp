/// \file
/// `take` keeps the first examples of a pass. Invariant: examples are selected, never changed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/count.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// The first `count` examples of each pass of `D`.
template <Dataset D>
class Take : public Selection<D> {
 public:
  Take(D source, std::uint64_t count) : Selection<D>(std::move(source)), count_(count) {}
  std::optional<std::uint64_t> size() const {
    return std::min(count_, this->source().size().value_or(count_));
  }
  auto indices(Pass pass) const {
    return FirstOf<StreamOf<D>>(this->source().indices(pass), count_);
  }

 private:
  std::uint64_t count_;
};

}  // namespace pipeline

/// Keeps the first `count` examples of each pass (tf.data's `take`), or all if there are fewer. Put
/// take before shuffle.
/// \throws UsageError if `count` is negative.
/// \code
///   auto few = train | lockstep::take(1'000);
/// \endcode
inline auto take(Count count) {
  const std::uint64_t n =
      count.checked("take", "give at least 0, or remove take to use all examples");
  return pipeline::operation_under_rescale<pipeline::Fault::shuffled>(
      [n]<class D>(D source) { return pipeline::Take<D>(std::move(source), n); },
      [](auto found) {
        static_assert(!found.batched, LOCKSTEP_BATCHED("take"));
        static_assert(!found.shuffled,
                      "lockstep::take: a shuffle before take would select other examples in each "
                      "pass; put take before shuffle, or use shuffle_once");
      });
}

}  // namespace lockstep
