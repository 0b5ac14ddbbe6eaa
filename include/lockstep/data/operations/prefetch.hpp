/// \file
/// `prefetch` assembles batches ahead of time. Invariant: it changes when a batch is assembled,
/// never its contents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/count.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// `D` with up to `depth` batches assembled ahead on a separate thread.
template <BatchedDataset D>
class Prefetch : public Selection<D> {
 public:
  static constexpr bool prefetched = true;

  Prefetch(D source, std::size_t depth) : Selection<D>(std::move(source)), depth_(depth) {}
  std::size_t batch_size() const { return this->source().batch_size(); }
  std::size_t prefetch_depth() const { return depth_; }
  const D& upstream() const { return this->source(); }

 private:
  std::size_t depth_;
};

/// The result of `lockstep::prefetch`.
struct PrefetchOperation : Operation {
  static constexpr std::size_t max_depth = 1024;  // each level costs the memory of one batch
  explicit PrefetchOperation(std::size_t n) : depth(n) {}
  std::size_t depth;

  template <Dataset D>
  auto apply(D source) const {
    constexpr bool twice = requires { D::prefetched; };
    static_assert(BatchedDataset<D>,
                  "lockstep::prefetch: the pipeline has no batch yet; put prefetch after batch");
    static_assert(!twice, "lockstep::prefetch: the pipeline already prefetches; write it once");
    if constexpr (!BatchedDataset<D> || twice)
      return source;
    else
      return Prefetch<D>(std::move(source), depth);
  }
};

}  // namespace pipeline

/// Assembles up to `depth` batches ahead, on a separate thread, while the model computes. With 0,
/// each batch is assembled when it is requested. The thread blocks asynchronous signals; a child
/// process that a function of the pipeline starts there inherits the blocked signals.
/// \throws UsageError unless `depth` is 0 to 1024.
/// \code
///   auto train = images | lockstep::batch(64) | lockstep::prefetch(2);
/// \endcode
inline pipeline::PrefetchOperation prefetch(Count depth) {
  const std::uint64_t batches = depth.checked(
      "prefetch",
      "the depth cannot be chosen automatically; give the number of batches to assemble ahead, "
      "usually 2");
  if (batches > pipeline::PrefetchOperation::max_depth)
    throw UsageError("prefetch({}): the depth exceeds {} batches; 2 is usually enough", batches,
                     pipeline::PrefetchOperation::max_depth);
  return pipeline::PrefetchOperation(static_cast<std::size_t>(batches));
}

}  // namespace lockstep
