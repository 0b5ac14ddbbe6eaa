/// \file
/// A batch on its way from the data to the replicas.
#pragma once

#include <cstddef>

#include "lockstep/core/slice.hpp"

namespace lockstep {

namespace detail {
template <class T, class Target>
class RowSource;
}  // namespace detail

/// The part of one global batch that a worker holds, or that a replica computes.
template <class T, class Target>
struct LoadedBatch {
  const T* x = nullptr;       ///< slice.count examples, row after row
  const Target* y = nullptr;  ///< their targets
  const T* w = nullptr;       ///< their weights; null: all 1
  BatchSlice slice;
  /// If not null, the examples are on the devices, and each replica fetches its own: x and w are
  /// null, y too, or labels for the host.
  detail::RowSource<T, Target>* rows = nullptr;
};

namespace detail {

/// Where examples are that are not in the host's memory.
template <class T, class Target>
class RowSource {
 public:
  /// Examples of the last batch, in memory of the device of this process' replica `local`, until
  /// its next `fetch`. In the thread of that replica.
  virtual LoadedBatch<T, Target> fetch(std::size_t local, const BatchSlice& slice) = 0;

 protected:
  ~RowSource() = default;
};

}  // namespace detail

}  // namespace lockstep
