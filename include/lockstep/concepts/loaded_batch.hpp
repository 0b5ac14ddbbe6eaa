/// \file
/// A batch on its way from the data to the replicas.
#pragma once

#include <cstddef>

#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep {

/// The part of one global batch that a worker holds, or that a replica computes.
template <class T, class Target>
struct LoadedBatch {
  const T* x = nullptr;       ///< slice.count examples, row after row
  const Target* y = nullptr;  ///< their targets
  const T* w = nullptr;       ///< their weights; null: all 1
  BatchSlice slice;
  /// Not empty, if the examples are on the devices: x and w are then null, y too, or labels for the
  /// host. Returns examples of this batch in memory of the device of the process' replica `local`,
  /// until its next call; to be called in that replica's thread.
  FunctionRef<LoadedBatch(std::size_t local, const BatchSlice& slice)> fetch = {};
};

}  // namespace lockstep
