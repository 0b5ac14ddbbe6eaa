/// \file
/// A description of a GPU for cuDNN 9.19, which makes heuristics and plans for it without one.
/// Invariant: it is what cuDNN said of an H200, if tests/data/h200.deviceprop.json is there (the
/// test of device_properties.cpp writes it on such a GPU); else the numbers are those that NVIDIA
/// publishes, and were not read from a device.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "lockstep/devices/cuda/libraries/cudnn.hpp"

namespace testing {

/// Of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION.
inline constexpr char published_h200[] =
    R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
"regsPerBlock": 65536, "multiProcessorCount": 132, "warpSize": 32,
"maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
"reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
"maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0,
"supportCoopLaunch": 1, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
"l2CacheSize": 62914560, "deviceName": "NVIDIA H200", "totalGlobalMem": 150754820096,
"cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000})";

inline constexpr char h200_file[] = LOCKSTEP_GOLDEN_DIR "/../../data/h200.deviceprop.json";

inline std::string h200_description() {
  std::ifstream file(h200_file);
  if (!file) return published_h200;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

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
