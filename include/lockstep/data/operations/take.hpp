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

/// The result of `lockstep::take`.
struct TakeOperation : Operation {
  explicit TakeOperation(std::uint64_t n) : count(n) {}
  std::uint64_t count;

  template <Dataset D>
  auto apply(D source) const {
    static_assert(!BatchedDataset<D>,
                  "lockstep::take: the pipeline is already batched; put take before batch");
    static_assert(!is_shuffled<D> || BatchedDataset<D>,
                  "lockstep::take: a shuffle before take would select other examples in "
                  "each pass; put take before shuffle, or use shuffle_once");
    if constexpr (BatchedDataset<D> || is_shuffled<D>)
      return source;
    else
      return apply_under_rescale(std::move(source), [n = count](auto inner) {
        return Take<decltype(inner)>(std::move(inner), n);
      });
  }
};

}  // namespace pipeline

/// Keeps the first `count` examples of each pass (tf.data's `take`), or all if there are fewer. Put
/// take before shuffle.
/// \throws UsageError if `count` is negative.
/// \code
///   auto few = train | lockstep::take(1'000);
/// \endcode
inline pipeline::TakeOperation take(Count count) {
  return pipeline::TakeOperation(
      count.checked("take", "give at least 0, or remove take to use all examples"));
}

}  // namespace lockstep
