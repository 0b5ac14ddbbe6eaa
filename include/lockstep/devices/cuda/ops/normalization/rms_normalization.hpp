/// \file
/// RMSNormalization on a GPU.
#pragma once

#include "lockstep/devices/cuda/support/block_normalization.hpp"
#include "lockstep/layers/normalization/rms_normalization.hpp"

namespace lockstep {

template <class Precision>
struct Kernel<RMSNormalizationOp, BasicCuda<Precision>>
    : detail::cuda::BlockNormalization<RMSNormalizationOp, Precision, false> {
  using library_kernel = Kernel;
};

static_assert(HasKernel<RMSNormalizationOp, Cuda>);

}  // namespace lockstep
