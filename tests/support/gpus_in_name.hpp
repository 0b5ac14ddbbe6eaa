/// \file
/// A driver table that enumerates GPUs but executes nothing.
#pragma once

#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace testing {

/// A driver with `count` GPUs that differ in the first byte of their UUIDs.
template <int count>
lockstep::detail::cuda::Driver gpus_in_name() {
  lockstep::detail::cuda::Driver table;
  table.cuDriverGetVersion = [](int* v) { return *v = 13000, CUDA_SUCCESS; };
  table.cuDeviceGetCount = [](int* n) { return *n = count, CUDA_SUCCESS; };
  table.cuDeviceGet = [](CUdevice* d, int i) { return *d = i, CUDA_SUCCESS; };
  table.cuDeviceGetUuid = [](CUuuid* u, CUdevice d) {
    *u = {};
    u->bytes[0] = static_cast<char>(d);
    return CUDA_SUCCESS;
  };
  table.cuDeviceGetAttribute = [](int* v, CUdevice_attribute, CUdevice) {
    return *v = 9, CUDA_SUCCESS;
  };
  return table;
}

}  // namespace testing
