/// \file
/// A description of a GPU for cuDNN 9.19, which makes heuristics and plans for it without one.
/// Invariant: the numbers are those that NVIDIA publishes for the H200; they were not read from a
/// device.
#pragma once

#include <optional>
#include <string>

#include "lockstep/devices/cuda/libraries/cudnn.hpp"

namespace testing {

inline constexpr char h200_description[] =
    R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
"regsPerBlock": 65536, "multiProcessorCount": 132, "warpSize": 32,
"maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
"reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
"maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0,
"supportCoopLaunch": 1, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
"l2CacheSize": 62914560, "deviceName": "NVIDIA H200", "totalGlobalMem": 150754820096,
"cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000})";

/// Why the real cuDNN cannot be used here; empty: it can.
inline std::string why_no_cudnn() {
  try {
    if (const std::size_t version = lockstep::detail::cuda::cudnn().cudnnGetVersion();
        version < 90800)
      return "cuDNN " + std::to_string(version) + " makes no plans without a GPU; 9.8 does";
    return "";
  } catch (const lockstep::DeviceError& error) {
    return error.what();
  }
}

}  // namespace testing
