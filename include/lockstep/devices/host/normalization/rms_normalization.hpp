/// \file
/// RMSNormalization on every device over host memory.
#pragma once

#include "lockstep/devices/host/normalization/block_normalization.hpp"
#include "lockstep/layers/normalization/rms_normalization.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<RMSNormalizationOp, D> : detail::BlockNormalization<RMSNormalizationOp, D, false> {
  using library_kernel = Kernel;
};

}  // namespace lockstep
