#pragma once

#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

/// \throws DeviceError if the driver is too old.
inline void check_version(int version) {
  if (version < min_driver)
    throw DeviceError(
        "cuda: the driver supports CUDA {}.{} and this program needs 13.0; update NVIDIA's driver to "
        "580 or later",
        version / 1000, version % 1000 / 10);
}

Driver Driver::load() {
  const Library library("libcuda.so.1", "install NVIDIA's driver, or use a program for the CPU");
  Driver table;
  // Checked first: an old driver lacks functions, and the version is the better message.
  LOCKSTEP_CUDA_FIND(cuDriverGetVersion)
  int version = 0;
  if (table.cuDriverGetVersion(&version) == CUDA_SUCCESS) check_version(version);
  LOCKSTEP_CUDA_DRIVER(LOCKSTEP_CUDA_FIND)
  return table;
}

const Driver& driver() { return EntryPoints<Driver>::get(); }

std::string describe(CUresult result) {
  const char *name = nullptr, *text = nullptr;
  driver().cuGetErrorName(result, &name);
  driver().cuGetErrorString(result, &text);
  return std::string(name == nullptr ? "unknown error" : name) + ", " +
         (text == nullptr ? "no description" : text);
}

/// Whether a kernel caused this error, which the next call returns, whatever it is.
inline bool is_of_kernel(CUresult result) {
  return result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_TIMEOUT ||
         result == CUDA_ERROR_ASSERT ||
         (result >= CUDA_ERROR_HARDWARE_STACK_ERROR && result <= CUDA_ERROR_LAUNCH_FAILED);
}

void refuse(CUresult result, const char* what) {
  throw DeviceError("cuda: {} failed: {}; {}", what, describe(result),
                    is_of_kernel(result)
                        ? "a kernel launched before this call failed: run again with "
                          "LOCKSTEP_CUDA_CHECK=1 in the environment to find out which one"
                        : "if this is the first error, search the system log for the "
                          "driver's message (dmesg, lines with Xid)");
}

void check_stream(CUstream stream) {
  // Errors of kernels are sticky: the context returns them from every call.
  const CUresult earlier = driver().cuStreamQuery(stream);
  if (earlier != CUDA_SUCCESS && earlier != CUDA_ERROR_NOT_READY)
    refuse(earlier, "waiting for the GPU");
}

}  // namespace lockstep::detail::cuda
