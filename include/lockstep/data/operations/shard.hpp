/// \file
/// `shard` keeps every n-th example of a pass. Invariant: examples are selected, never changed.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/count.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// The elements at positions `first`, `first` + `step`, ... of a stream.
template <IndexStream S>
class EachNth {
 public:
  EachNth(S source, std::uint64_t step, std::uint64_t first)
      : source_(std::move(source)), step_(step), first_(first), ahead_(first) {}
  std::optional<std::uint64_t> next() {
    for (; ahead_ > 0; --ahead_)
      if (!source_.next()) return std::nullopt;
    const auto index = source_.next();
    if (index) ahead_ = step_ - 1;
    return index;
  }
  void restart(Pass pass)
    requires Restartable<S>
  {
    source_.restart(pass);
    ahead_ = first_;
  }

 private:
  S source_;
  std::uint64_t step_, first_;
  std::uint64_t ahead_;  // elements to skip before the next one
};

/// Shard `index` of the `count` shards of `D`.
template <Dataset D>
class Shard : public Selection<D> {
 public:
  /// \throws UsageError unless index < count.
  Shard(D source, std::uint64_t count, std::uint64_t index)
      : Selection<D>(std::move(source)), count_(count), index_(index) {
    if (index >= count)
      throw UsageError(
          "shard({}, {}): shard indices run from 0 to {}; give a count of at least 1 and an index "
          "below it",
          count, index, count == 0 ? 0 : count - 1);
  }
  std::optional<std::uint64_t> size() const {
    const auto all = this->source().size();
    if (!all) return std::nullopt;
    return *all / count_ + (*all % count_ > index_ ? 1 : 0);
  }
  auto indices(Pass pass) const {
    return EachNth<StreamOf<D>>(this->source().indices(pass), count_, index_);
  }

 private:
  std::uint64_t count_, index_;
};

}  // namespace pipeline

/// Keeps the examples at positions `index`, `index` + `count`, ... of each pass (tf.data's
/// `shard`), for the folds of a cross-validation or a subset of large data.
///
/// Not for distributed training: a strategy splits each global batch itself and every worker must
/// pass it the same pipeline, so `index` must not be the rank of a worker.
/// \throws UsageError if an argument is negative, or, when applied to a source, unless index <
/// count.
/// \code
///   auto fold = images | lockstep::shard(5, 0);   // examples 0, 5, 10, ...
/// \endcode
inline auto shard(Count count, Count index) {
  constexpr const char* remedy =
      "shard indices start at 0; give a count of at least 1 and an index below it";
  return pipeline::operation_under_rescale<pipeline::Fault::shuffled>(
      [n = count.checked("shard", remedy), i = index.checked("shard", remedy)]<class D>(D source) {
        return pipeline::Shard<D>(std::move(source), n, i);
      },
      [](auto found) {
        static_assert(!found.batched, LOCKSTEP_BATCHED("shard"));
        static_assert(!found.shuffled,
                      "lockstep::shard: a shuffle before shard would select other examples in "
                      "each pass; put shard before shuffle, or use shuffle_once");
      });
}

}  // namespace lockstep
