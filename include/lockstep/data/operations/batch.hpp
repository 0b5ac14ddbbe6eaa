/// \file
/// `batch`: the end of a pipeline of single examples. Invariant: `batch_size` is the global batch,
/// of all replicas together; only `prefetch` may follow.
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

/// What becomes of the last examples of a pass if they do not fill a batch.
enum class Remainder { keep, drop };

/// For `batch(n, drop_remainder)`.
inline constexpr Remainder drop_remainder = Remainder::drop;

namespace pipeline {

/// `D` in global batches.
template <Dataset D>
class Batch : public Selection<D> {
 public:
  /// \throws UsageError if `size` is 0.
  Batch(D source, std::size_t size, Remainder remainder)
      : Selection<D>(std::move(source)), batch_size_(size), remainder_(remainder) {
    if (size == 0)
      throw UsageError("batch(0): a batch needs at least one example; give a size of at least 1");
  }
  /// Examples in a pass; without those that `drop_remainder` leaves out.
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

/// What `lockstep::batch` returns.
struct BatchOperation : Operation {
  BatchOperation(std::size_t n, Remainder r) : size(n), remainder(r) {}
  std::size_t size;
  Remainder remainder;

  template <Dataset D>
  auto apply(D source) const {
    static_assert(!BatchedDataset<D>,
                  "lockstep::batch: the pipeline is already batched; write batch once");
    if constexpr (BatchedDataset<D>)
      return source;
    else
      return Batch<D>(std::move(source), size, remainder);
  }
};

}  // namespace pipeline

/// Global batches of `size` examples; a strategy cuts each by replica. The last batch of a pass may
/// be smaller, or is left out with `drop_remainder`.
/// \throws UsageError if `size` is negative, or 0 when it meets its source.
/// \code
///   auto train = images | lockstep::batch(64, lockstep::drop_remainder);
/// \endcode
inline pipeline::BatchOperation batch(Count size, Remainder remainder = Remainder::keep) {
  return {static_cast<std::size_t>(size.checked(
              "batch", "a batch needs at least one example; give a size of at least 1")),
          remainder};
}

}  // namespace lockstep
