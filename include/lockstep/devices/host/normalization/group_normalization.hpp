/// \file
/// GroupNormalization on every device over host memory.
#pragma once

#include "lockstep/devices/host/normalization/block_normalization.hpp"
#include "lockstep/layers/normalization/group_normalization.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<GroupNormalizationOp, D> : detail::BlockNormalization<GroupNormalizationOp, D> {
  using library_kernel = Kernel;
};

}  // namespace lockstep
