/// \file
/// The CUDA driver: memory, streams, modules, graphs. Invariant: only the driver's interface is
/// used, not the run-time library's, so that no file needs nvcc.
#pragma once

#include <cuda.h>

#include <chrono>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/libraries/library.hpp"

// clang-format off
#define LOCKSTEP_CUDA_DRIVER(entry) \
  entry(cuInit) \
  entry(cuDriverGetVersion) \
  entry(cuGetErrorName) \
  entry(cuGetErrorString) \
  entry(cuDeviceGetCount) \
  entry(cuDeviceGet) \
  entry(cuDeviceGetName) \
  entry(cuDeviceGetUuid) \
  entry(cuDeviceTotalMem) \
  entry(cuDeviceGetAttribute) \
  entry(cuDevicePrimaryCtxRetain) \
  entry(cuCtxPushCurrent) \
  entry(cuCtxPopCurrent) \
  entry(cuMemAlloc) \
  entry(cuMemFree) \
  entry(cuMemGetInfo) \
  entry(cuMemHostAlloc) \
  entry(cuMemFreeHost) \
  entry(cuMemcpyHtoDAsync) \
  entry(cuMemcpyDtoHAsync) \
  entry(cuMemcpyDtoDAsync) \
  entry(cuMemsetD8Async) \
  entry(cuStreamCreate) \
  entry(cuStreamCreateWithPriority) \
  entry(cuCtxGetStreamPriorityRange) \
  entry(cuStreamDestroy) \
  entry(cuStreamSynchronize) \
  entry(cuStreamQuery) \
  entry(cuStreamWaitEvent) \
  entry(cuStreamBeginCapture) \
  entry(cuStreamEndCapture) \
  entry(cuStreamGetCaptureInfo) \
  entry(cuEventCreate) \
  entry(cuEventDestroy) \
  entry(cuEventRecord) \
  entry(cuEventRecordWithFlags) \
  entry(cuEventSynchronize) \
  entry(cuEventElapsedTime) \
  entry(cuGraphInstantiate) \
  entry(cuGraphLaunch) \
  entry(cuGraphDestroy) \
  entry(cuGraphExecDestroy) \
  entry(cuGraphExecKernelNodeSetParams) \
  entry(cuModuleLoadData) \
  entry(cuModuleUnload) \
  entry(cuModuleGetFunction) \
  entry(cuFuncGetName) \
  entry(cuLaunchKernel)
// clang-format on

namespace lockstep::detail::cuda {

/// What the driver must support: the libraries' version.
inline constexpr int min_driver = 13000;

/// The driver's functions that lockstep calls.
struct Driver {
  LOCKSTEP_CUDA_DRIVER(LOCKSTEP_CUDA_MEMBER)

  /// \throws DeviceError if the library is missing or too old.
  LOCKSTEP_COLD_DECL static Driver load();
};

LOCKSTEP_DECL const Driver& driver();

/// Held while a graph is recorded. The driver refuses to wait for a whole GPU while a thread
/// records, and invalidates the recording: libraries that may wait for one are opened and closed
/// under DeviceSyncLock. Several threads may record at once. Recording starts after a second even if a
/// library is still at work.
class CaptureLock {
 public:
  static constexpr std::chrono::seconds patience{1};

  CaptureLock() : lock_(mutex(), patience) {}
  /// One for the process, as the driver is.
  [[gnu::visibility("default")]] static std::shared_timed_mutex& mutex() {
    static std::shared_timed_mutex all;
    return all;
  }

 private:
  std::shared_lock<std::shared_timed_mutex> lock_;
};

/// Held while a library may wait for a whole GPU: waits for recordings, for a second at most.
class DeviceSyncLock {
 public:
  DeviceSyncLock() : lock_(CaptureLock::mutex(), CaptureLock::patience) {}

 private:
  std::unique_lock<std::shared_timed_mutex> lock_;
};

/// What went wrong, in the driver's words.
LOCKSTEP_COLD_DECL std::string describe(CUresult result);

[[noreturn]] LOCKSTEP_COLD_DECL void refuse(CUresult result, const char* what);

/// \throws DeviceError if a kernel that was started before has failed: then every call fails.
LOCKSTEP_COLD_DECL void check_stream(CUstream stream);

/// \throws DeviceError that says what failed.
inline void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) refuse(result, what);
}

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/libraries/driver.ipp"
#endif
