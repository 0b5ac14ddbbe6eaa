/// \file
/// A last layer whose outputs are never stored as a whole.
#pragma once

#include <cstddef>

#include "lockstep/model/sequential.hpp"

namespace lockstep {

/// A last layer with many outputs, such as the logits of a large vocabulary, fused with the loss: they
/// are computed for a block of rows, the loss and the metrics read them, backward of the layer adds to
/// the gradients of its weights, and the next block overwrites them (as Liger's fused linear
/// cross-entropy; Hsu et al., 2024). A row is an example, or one of its steps or positions. The same
/// kernels as without InBlocks compute the same numbers up to the rounding of sums over blocks.
///
/// Layer is Dense without an activation, or TiedDense, and the last layer of the network, outside of
/// Recompute. The loss and the metrics compute each row alone, as all of the library do; the device is
/// one over host memory. `Rows` per block; 0: the largest multiple of 16 whose outputs take 32 MiB, but
/// at least 16. predict and ls::Predictor return all outputs as before.
/// \code
///   without   batch * steps * V outputs, and as many gradients
///   with      Rows * V of both, and once more the gradients of the layer's weights
/// \endcode
/// \code
///   struct Words : ls::Sequential<ls::Input<128>, ls::Shared<"tokens", ls::Embedding<50'257, 256>>,
///                                 ls::GRU<256, ls::return_sequences>,
///                                 ls::InBlocks<ls::TiedDense<"tokens">>> {};
/// \endcode
template <class Layer, std::size_t Rows = 0>
struct InBlocks : Sequential<Layer> {
  template <class Walk>
  static constexpr detail::ValueId append(Walk& walk, detail::ValueId v) {
    const detail::ValueId out = walk.template add<Layer>(v);
    if constexpr (requires { walk.block_rows; }) walk.compute_in_blocks(Rows);
    return out;
  }
};

}  // namespace lockstep
