/// \file
/// The host as a stand-in for a GPU, as shared libraries: a program loads HostGpu as libcuda.so.1
/// and libnvrtc.so.13 and needs no test code. Invariant: each library exports exactly the names in
/// lockstep's table, in the versions that NVIDIA's headers request.
#pragma once

#include "support/host_gpu.hpp"

namespace testing {

/// Created when the first function is looked up; lives until the process ends, like a driver.
inline void open_host_gpu() {
  // A second libnvrtc.so.13 would be this library again.
  static const bool alone = setenv("LOCKSTEP_WITHOUT_NVRTC", "1", 1) == 0;
  static const HostGpu& gpu = *new HostGpu;
  (void)alone, (void)gpu;
}

}  // namespace testing

/// Exports `name`; dlsym calls its resolver, which returns the entry of `table()`.
#define LOCKSTEP_HOST_EXPORT(name, table)         \
  extern "C" decltype(&::name) resolve_##name() { \
    testing::open_host_gpu();                     \
    return lockstep::detail::cuda::table().name;  \
  }                                               \
  extern "C" [[gnu::visibility("default"), gnu::ifunc("resolve_" #name)]] decltype(::name) name;
