/// \file
/// A batch on its way from the loader to the replicas.
#pragma once

#include <cstddef>

#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep {

/// The part of one global batch that a worker holds or a replica computes.
template <class T, class Target>
struct LoadedBatch {
  const T* x = nullptr;       ///< slice.count examples, row after row
  const Target* y = nullptr;  ///< their targets
  const T* w = nullptr;       ///< their weights; null: all 1
  BatchSlice slice;
  /// Set if the data set resides on the devices; x and w are then null, and y is null or holds
  /// labels for the host. Returns examples of this batch in the device memory of local replica
  /// `local`, valid until its next call. Call it in the thread of that replica.
  FunctionRef<LoadedBatch(std::size_t local, const BatchSlice& slice)> fetch = {};
};

}  // namespace lockstep
