/// \file
/// GroupNormalization on a GPU.
#pragma once

#include "lockstep/devices/cuda/support/block_normalization.hpp"
#include "lockstep/layers/normalization/group_normalization.hpp"

namespace lockstep {

template <class Precision>
struct Kernel<GroupNormalizationOp, BasicCuda<Precision>>
    : detail::cuda::BlockNormalization<GroupNormalizationOp, Precision> {
  using library_kernel = Kernel;
};

static_assert(HasKernel<GroupNormalizationOp, Cuda>);

}  // namespace lockstep
