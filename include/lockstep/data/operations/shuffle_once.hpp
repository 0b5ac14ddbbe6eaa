/// \file
/// `shuffle_once` fixes a random order. Invariant: the order is a pure function of its seed and the
/// number of examples, the same in each pass and for each reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/operations/filter.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/pipe.hpp"

namespace lockstep {

namespace pipeline {

/// The indices of `source` in the order that `seed` gives.
template <Dataset D>
IndexList indices_shuffled(const D& source, std::uint64_t seed) {
  const auto size = source.size();
  if (!size)
    throw UsageError("shuffle_once: the pipeline is infinite; put take before shuffle_once");
  if (*size > std::numeric_limits<std::uint32_t>::max())
    throw UsageError("shuffle_once: {} examples exceed the limit of 4294967295; put take first",
                     *size);
  Shuffled<StreamOf<D>> stream(source.indices(Pass{}), static_cast<std::size_t>(*size), {seed, 0});
  auto order = std::make_shared<std::vector<std::uint64_t>>();
  order->reserve(static_cast<std::size_t>(*size));
  while (const auto index = stream.next()) order->push_back(*index);
  return order;
}

}  // namespace pipeline

/// Shuffles all examples into one order, which stays the same in each pass (tf.data's `shuffle`
/// with `reshuffle_each_iteration=False`). The order depends on `seed` alone, not on the model's
/// `Seed`. Use it before take, skip and shard to split data at random.
/// \throws UsageError, when applied to a source, if that is infinite or has 2^32 examples or more.
/// \code
///   const auto mixed = images | lockstep::shuffle_once();
///   auto validation = mixed | lockstep::take(1'000) | lockstep::batch(64);
///   auto train = mixed | lockstep::skip(1'000) | lockstep::shuffle(10'000) | lockstep::batch(64);
/// \endcode
inline auto shuffle_once(std::uint64_t seed = 0) {
  return pipeline::operation_under_rescale<pipeline::Fault::reordered>(
      [seed]<class D>(D source) {
        auto order = pipeline::indices_shuffled(source, seed);
        return pipeline::Listed<D>(std::move(source), std::move(order));
      },
      [](auto found) {
        static_assert(!found.batched, LOCKSTEP_BATCHED("shuffle_once"));
        static_assert(!found.reordered,
                      "lockstep::shuffle_once: a shuffle or repeat before shuffle_once changes the "
                      "order in each pass; put shuffle_once first");
      });
}

}  // namespace lockstep
