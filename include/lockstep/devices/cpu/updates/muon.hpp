/// \file
/// Muon on the CPU: the kernel of devices/host with products in vectors, on all threads.
#pragma once

#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/updates/matrix_product.hpp"
#include "lockstep/devices/host/muon.hpp"

namespace lockstep {

template <class P>
struct Kernel<MuonOp, BasicCpu<P>> : detail::MuonKernel<BasicCpu<P>, detail::ProductsInVectors> {
  using library_kernel = Kernel;
};

}  // namespace lockstep
