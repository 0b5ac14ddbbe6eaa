/// \file
/// `prefetch`: batches assembled ahead. Invariant: changes when a batch is assembled, never what is
/// in it.
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

/// `D` with `depth` batches assembled ahead on a thread of their own.
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

/// What `lockstep::prefetch` returns.
struct PrefetchOperation : Operation {
  static constexpr std::size_t max_depth = 1024;  // each takes the memory of a batch
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

/// Up to `depth` batches are assembled ahead, on a thread of their own, while the model computes.
/// 0 assembles each batch when it is asked for. That thread takes no asynchronous signal, and a
/// process that a function of the pipeline starts there inherits this. \throws UsageError unless `depth` is 0 to 1024.
/// \code
///   auto train = images | lockstep::batch(64) | lockstep::prefetch(2);
/// \endcode
inline pipeline::PrefetchOperation prefetch(Count depth) {
  const std::uint64_t batches = depth.checked(
      "prefetch",
      "the depth cannot be chosen automatically; give the number of batches to assemble ahead, usually 2");
  if (batches > pipeline::PrefetchOperation::max_depth)
    throw UsageError("prefetch({}): the depth exceeds {} batches; 2 is usually enough", batches,
                     pipeline::PrefetchOperation::max_depth);
  return pipeline::PrefetchOperation(static_cast<std::size_t>(batches));
}

}  // namespace lockstep
