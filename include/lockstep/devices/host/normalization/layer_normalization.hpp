/// \file
/// LayerNormalization on every device over host memory.
#pragma once

#include "lockstep/devices/host/normalization/block_normalization.hpp"
#include "lockstep/layers/normalization/layer_normalization.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<LayerNormalizationOp, D> : detail::BlockNormalization<LayerNormalizationOp, D> {
  using library_kernel = Kernel;
};

}  // namespace lockstep
