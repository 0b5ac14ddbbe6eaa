/// \file
/// The CUDA driver: memory, streams, modules, graphs. Invariant: only the driver's interface is
/// used, not the run-time library's, so that no file needs nvcc.
#pragma once

#include <cuda.h>

#include <chrono>
#include <mutex>
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
  entry(cuStreamDestroy) \
  entry(cuStreamSynchronize) \
  entry(cuStreamQuery) \
  entry(cuStreamWaitEvent) \
  entry(cuStreamBeginCapture) \
  entry(cuStreamEndCapture) \
  entry(cuStreamGetCaptureInfo) \
  entry(cuStreamUpdateCaptureDependencies) \
  entry(cuEventCreate) \
  entry(cuEventDestroy) \
  entry(cuEventRecord) \
  entry(cuEventSynchronize) \
  entry(cuEventElapsedTime) \
  entry(cuGraphAddChildGraphNode) \
  entry(cuGraphInstantiate) \
  entry(cuGraphLaunch) \
  entry(cuGraphDestroy) \
  entry(cuGraphExecDestroy) \
  entry(cuGraphExecKernelNodeSetParams) \
  entry(cuModuleLoadData) \
  entry(cuModuleUnload) \
  entry(cuModuleGetFunction) \
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

/// Lives while a graph is recorded, and while a library may wait for a whole GPU: the driver
/// refuses to wait for one where a thread records, and ends the recording. Only for a while does
/// one wait for the other: replicas may have to go on together.
class Undisturbed {
 public:
  Undisturbed() : lock_(mutex(), std::chrono::seconds(1)) {}
  /// One for the process, as the driver is.
  [[gnu::visibility("default")]] static std::timed_mutex& mutex() {
    static std::timed_mutex all;
    return all;
  }

 private:
  std::unique_lock<std::timed_mutex> lock_;
};

/// What went wrong, in the driver's words.
[[gnu::cold]] inline std::string describe(CUresult result) {
  const char *name = nullptr, *text = nullptr;
  driver().cuGetErrorName(result, &name);
  driver().cuGetErrorString(result, &text);
  return std::string(name == nullptr ? "unknown error" : name) + ", " +
         (text == nullptr ? "no description" : text);
}

[[noreturn, gnu::cold]] inline void refuse(CUresult result, const char* what) {
  throw DeviceError({"cuda: ", what, " failed: ", describe(result),
                     "; if this is the first error, look into the system's log for the driver's "
                     "message (dmesg, lines with Xid)"});
}

/// \throws DeviceError that says what failed.
inline void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) refuse(result, what);
}

}  // namespace lockstep::detail::cuda
