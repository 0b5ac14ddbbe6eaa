/// \file
/// A batch on its way from the loader to the replicas.
#pragma once

#include <array>
#include <cstddef>

#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep {

/// The part of one global batch that a worker holds or a replica computes: its fields, row after
/// row, in the order of the model's BatchLayout.
struct LoadedBatch {
  /// Fields of a batch at most.
  static constexpr std::size_t most = 16;

  std::array<const void*, most> field{};  ///< null: absent; absent weights are 1
  BatchSlice slice;
  /// The rows of a field, whose elements have type E.
  template <class E>
  const E* rows(std::size_t i) const {
    return static_cast<const E*>(field[i]);
  }
  /// Set if the data set resides on the devices; fields but the targets are then null. Returns
  /// examples of this batch in the device memory of local replica `local`, valid until its next
  /// call. Call it in the thread of that replica.
  FunctionRef<LoadedBatch(std::size_t local, const BatchSlice& slice)> fetch = {};
};

}  // namespace lockstep
