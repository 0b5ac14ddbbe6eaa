/// \file
/// Device properties of an H200 for cuDNN 9.19, which runs heuristics and builds plans for a
/// described GPU without having one. The properties are those that cuDNN reported on an H200, if
/// tests/data/h200.deviceprop.json exists (the test of device_properties.cpp writes it on such a
/// GPU); otherwise the numbers published by NVIDIA.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "lockstep/devices/cuda/libraries/cudnn.hpp"

namespace testing {

/// In the format of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION.
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

/// Why the real cuDNN cannot be used on this machine; empty if it can.
inline std::string why_no_cudnn() {
  try {
    if (const std::size_t version = lockstep::detail::cuda::cudnn().cudnnGetVersion();
        version < 90800)
      return "cuDNN " + std::to_string(version) + " cannot build plans without a GPU; 9.8 can";
    return "";
  } catch (const lockstep::DeviceError& error) {
    return error.what();
  }
}

}  // namespace testing
