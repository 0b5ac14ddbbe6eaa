/// \file
/// LayerNormalization on a GPU.
#pragma once

#include "lockstep/devices/cuda/support/block_normalization.hpp"
#include "lockstep/layers/normalization/layer_normalization.hpp"

namespace lockstep {

template <class Precision>
struct Kernel<LayerNormalizationOp, BasicCuda<Precision>>
    : detail::cuda::BlockNormalization<LayerNormalizationOp, Precision> {
  using library_kernel = Kernel;
};

static_assert(HasKernel<LayerNormalizationOp, Cuda>);

}  // namespace lockstep
