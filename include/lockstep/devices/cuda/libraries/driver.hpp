/// \file
/// The CUDA driver: memory, streams, modules, graphs. Invariant: only the driver API is used, not
/// the runtime API, so no file needs nvcc.
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

/// The CUDA version that the driver must support; the libraries need it.
inline constexpr int min_driver = 13000;

/// The driver functions that lockstep calls.
struct Driver {
  LOCKSTEP_CUDA_DRIVER(LOCKSTEP_CUDA_MEMBER)

  /// Loads the driver. \throws DeviceError if it is missing or too old.
  LOCKSTEP_COLD_DECL static Driver load();
};

/// The loaded table. \throws DeviceError as `load`.
LOCKSTEP_DECL const Driver& driver();

/// Held, shared, during capture. While any thread captures, the driver refuses to synchronise a
/// device and invalidates the capture; libraries that may do so are opened and closed under
/// DeviceSyncLock. Capture starts after a second even if a library is still at work.
class CaptureLock {
 public:
  /// Longest wait for the other kind of lock.
  static constexpr std::chrono::seconds patience{1};

  CaptureLock() : lock_(mutex(), patience) {}
  /// One per process, like the driver.
  [[gnu::visibility("default")]] static std::shared_timed_mutex& mutex() {
    static std::shared_timed_mutex all;
    return all;
  }

 private:
  std::shared_lock<std::shared_timed_mutex> lock_;
};

/// Held, exclusively, while a library may synchronise a device. Waits for captures, for at most a
/// second.
class DeviceSyncLock {
 public:
  DeviceSyncLock() : lock_(CaptureLock::mutex(), CaptureLock::patience) {}

 private:
  std::unique_lock<std::shared_timed_mutex> lock_;
};

/// The driver's name and description of an error.
LOCKSTEP_COLD_DECL std::string describe(CUresult result);

/// \throws DeviceError "cuda: `what` failed: ...", with a hint at the cause.
[[noreturn]] LOCKSTEP_COLD_DECL void refuse(CUresult result, const char* what);

/// \throws DeviceError if an earlier kernel has failed: then every call fails.
LOCKSTEP_COLD_DECL void check_stream(CUstream stream);

/// \throws DeviceError as `refuse`, unless the result is success.
inline void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) refuse(result, what);
}

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/libraries/driver.ipp"
#endif
