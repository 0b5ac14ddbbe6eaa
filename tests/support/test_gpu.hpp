/// \file
/// The GPU that a test runs on: the machine's, if there is one, otherwise HostGpu. Expected values
/// are the same.
#pragma once

#include <cstdlib>
#include <optional>

#include "lockstep/devices/cuda/gpus.hpp"
#include "support/host_gpu.hpp"

namespace testing {

/// Whether this machine has a GPU that lockstep can use; false if LOCKSTEP_TEST_GPU=host.
inline bool has_gpu() {
  static const bool has = [] {
    const char* const wish = std::getenv("LOCKSTEP_TEST_GPU");
    if (wish != nullptr && std::string_view(wish) == "host") return false;
    try {
      return lockstep::detail::cuda::count_gpus() > 0;
    } catch (const lockstep::DeviceError&) {
      return false;
    }
  }();
  return has;
}

/// Construct it before opening a device.
/// \code
///   testing::TestGpu gpu;
///   auto context = ls::Cuda{}.open(1, 0);
/// \endcode
class TestGpu {
 public:
  TestGpu() {
    if (!has_gpu()) host_.emplace();
  }
  /// Null on a real GPU.
  HostGpu* host() { return host_ ? &*host_ : nullptr; }

 private:
  std::optional<HostGpu> host_;
};

}  // namespace testing
