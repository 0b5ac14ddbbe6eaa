/// \file
/// `batch` ends a pipeline of single examples. Invariant: `batch_size` is the global batch, summed
/// over all replicas; only `prefetch` may follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/count.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

/// Treatment of the last examples of a pass when they do not fill a batch.
enum class Remainder { keep, drop };

/// The second argument of `batch(n, drop_remainder)`.
inline constexpr Remainder drop_remainder = Remainder::drop;

namespace pipeline {

/// `D` grouped into global batches.
template <Dataset D>
class Batch : public Selection<D> {
 public:
  /// \throws UsageError if `size` is 0.
  Batch(D source, std::size_t size, Remainder remainder)
      : Selection<D>(std::move(source)), batch_size_(size), remainder_(remainder) {
    if (size == 0)
      throw UsageError("batch(0): a batch needs at least one example; give a size of at least 1");
  }
  /// Examples in a pass, not counting those that `drop_remainder` drops.
  std::optional<std::uint64_t> size() const {
    const auto all = this->source().size();
    if (!all || remainder_ == Remainder::keep) return all;
    return *all - *all % batch_size_;
  }
  auto indices(Pass pass) const {
    return FirstOf<StreamOf<D>>(this->source().indices(pass),
                                size().value_or(std::numeric_limits<std::uint64_t>::max()));
  }
  std::size_t batch_size() const { return batch_size_; }
  static constexpr std::size_t prefetch_depth() { return 0; }
  Remainder remainder() const { return remainder_; }
  const D& upstream() const { return this->source(); }

 private:
  std::size_t batch_size_;
  Remainder remainder_;
};

}  // namespace pipeline

/// Groups examples into global batches of `size`, which a strategy splits by replica. The last
/// batch of a pass may be smaller, or is dropped with `drop_remainder`.
/// \throws UsageError if `size` is negative, or, when applied to a source, 0.
/// \code
///   auto train = images | lockstep::batch(64, lockstep::drop_remainder);
/// \endcode
inline auto batch(Count size, Remainder remainder = Remainder::keep) {
  const auto n = static_cast<std::size_t>(
      size.checked("batch", "a batch needs at least one example; give a size of at least 1"));
  return pipeline::operation(
      [n, remainder]<class D>(D source) {
        return pipeline::Batch<D>(std::move(source), n, remainder);
      },
      [](auto found) {
        static_assert(!found.batched,
                      "lockstep::batch: the pipeline is already batched; write batch once");
      });
}

}  // namespace lockstep
