/// \file
/// cuDNN of an opened GPU. Invariant: a machine without cuDNN is no error; it is said once in a
/// process.
#pragma once

#include <atomic>
#include <cstddef>

#include "lockstep/devices/cuda/libraries/cudnn.hpp"
#include "lockstep/devices/cuda/libraries/missing.hpp"

namespace lockstep::detail::cuda {

/// cuDNN's handle, or none if the library is missing or cannot be opened.
class CudnnAccess {
 public:
  [[gnu::cold]] CudnnAccess() {
    try {
      check(cudnn().cudnnCreate(&handle_), "opening cuDNN");
      version_ = cudnn().cudnnGetVersion();
    } catch (const DeviceError& error) {
      handle_ = nullptr;
      warn_once(said, text({error.what(),
                            "; convolutions run on kernels of lockstep's own, "
                            "which are slower"}));
    }
  }
  ~CudnnAccess() {
    if (handle_ != nullptr) cudnn().cudnnDestroy(handle_);
  }
  CudnnAccess(const CudnnAccess&) = delete;
  CudnnAccess& operator=(const CudnnAccess&) = delete;

  /// Null: none.
  cudnnHandle_t handle() const { return handle_; }
  std::size_t version() const { return version_; }

  /// Whether the warning was said.
  static inline std::atomic<bool> said{false};

 private:
  cudnnHandle_t handle_ = nullptr;
  std::size_t version_ = 0;
};

}  // namespace lockstep::detail::cuda
