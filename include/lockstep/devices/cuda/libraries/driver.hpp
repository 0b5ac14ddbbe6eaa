/// \file
/// The CUDA driver: memory, streams, modules, graphs. Invariant: only the driver's interface is
/// used, not the run-time library's, so that no file needs nvcc.
#pragma once

#include <cuda.h>

#include <chrono>
#include <mutex>
#include <shared_mutex>
#include <string>

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
inline constexpr int least_driver = 13000;

/// \throws DeviceError if the driver is too old.
[[gnu::cold]] inline void check_version(int version) {
  if (version < least_driver)
    throw DeviceError({"cuda: the driver supports CUDA ", version / 1000, ".", version % 1000 / 10,
                       ", this program needs 13.0; update NVIDIA's driver to 580 or later"});
}

/// The driver's functions that lockstep calls.
struct Driver {
  LOCKSTEP_CUDA_DRIVER(LOCKSTEP_CUDA_MEMBER)

  /// \throws DeviceError if the library is missing or too old.
  [[gnu::cold]] static Driver load() {
    const Library library("libcuda.so.1", "install NVIDIA's driver, or use a program for the CPU");
    Driver table;
    // First of all: an old driver lacks functions, and its version says more.
    LOCKSTEP_CUDA_FIND(cuDriverGetVersion)
    int version = 0;
    if (table.cuDriverGetVersion(&version) == CUDA_SUCCESS) check_version(version);
    LOCKSTEP_CUDA_DRIVER(LOCKSTEP_CUDA_FIND)
    return table;
  }
};

inline const Driver& driver() { return EntryPoints<Driver>::get(); }

/// Held while a graph is recorded. The driver refuses to wait for a whole GPU while a thread
/// records, and invalidates the recording: libraries that may wait for one are opened and closed
/// under Disturbing. Several threads may record at once. Recording starts after a second even if a library is still at work.
class Undisturbed {
 public:
  static constexpr std::chrono::seconds patience{1};

  Undisturbed() : lock_(mutex(), patience) {}
  /// One for the process, as the driver is.
  [[gnu::visibility("default")]] static std::shared_timed_mutex& mutex() {
    static std::shared_timed_mutex all;
    return all;
  }

 private:
  std::shared_lock<std::shared_timed_mutex> lock_;
};

/// Held while a library may wait for a whole GPU: waits for recordings, for a second at most.
class Disturbing {
 public:
  Disturbing() : lock_(Undisturbed::mutex(), Undisturbed::patience) {}

 private:
  std::unique_lock<std::shared_timed_mutex> lock_;
};

/// What went wrong, in the driver's words.
[[gnu::cold]] inline std::string describe(CUresult result) {
  const char *name = nullptr, *text = nullptr;
  driver().cuGetErrorName(result, &name);
  driver().cuGetErrorString(result, &text);
  return std::string(name == nullptr ? "unknown error" : name) + ", " +
         (text == nullptr ? "no description" : text);
}

/// Whether this is an error of a kernel, which whatever call comes next returns.
[[gnu::cold]] inline bool is_of_kernel(CUresult result) {
  return result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_TIMEOUT ||
         result == CUDA_ERROR_ASSERT ||
         (result >= CUDA_ERROR_HARDWARE_STACK_ERROR && result <= CUDA_ERROR_LAUNCH_FAILED);
}

[[noreturn, gnu::cold]] inline void refuse(CUresult result, const char* what) {
  throw DeviceError({"cuda: ", what, " failed: ", describe(result), "; ",
                     is_of_kernel(result)
                         ? "a kernel that was started before this call failed: run again with "
                           "LOCKSTEP_CUDA_CHECK=1 in the environment to learn which one"
                         : "if this is the first error, look into the system's log for the "
                           "driver's message (dmesg, lines with Xid)"});
}

/// \throws DeviceError if a kernel that was started before has failed: then every call fails.
[[gnu::cold]] inline void refuse_earlier(CUstream stream) {
  const CUresult earlier = driver().cuStreamQuery(stream);
  if (earlier != CUDA_SUCCESS && earlier != CUDA_ERROR_NOT_READY)
    refuse(earlier, "waiting for the GPU");
}

/// \throws DeviceError that says what failed.
inline void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) refuse(result, what);
}

}  // namespace lockstep::detail::cuda
