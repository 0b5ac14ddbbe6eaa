/// \file
/// cuBLASLt of an opened GPU. Invariant: a machine without cuBLASLt is no error; it is said once in
/// a process.
#pragma once

#include <atomic>
#include <cstddef>

#include "lockstep/devices/cuda/libraries/cublaslt.hpp"
#include "lockstep/devices/cuda/libraries/missing.hpp"

namespace lockstep::detail::cuda {

/// cuBLASLt's handle, or none if the library is missing or cannot be opened.
class CublasLtAccess {
 public:
  [[gnu::cold]] CublasLtAccess() {
    try {
      check(cublaslt().cublasLtCreate(&handle_), "opening cuBLASLt");
      version_ = cublaslt().cublasLtGetVersion();
    } catch (const DeviceError& error) {
      handle_ = nullptr;
      warn_once(said, text({error.what(),
                            "; dense layers run on kernels of lockstep's own, which "
                            "are slower"}));
    }
  }
  ~CublasLtAccess() {
    if (handle_ != nullptr) cublaslt().cublasLtDestroy(handle_);
  }
  CublasLtAccess(const CublasLtAccess&) = delete;
  CublasLtAccess& operator=(const CublasLtAccess&) = delete;

  /// Null: none.
  cublasLtHandle_t handle() const { return handle_; }
  std::size_t version() const { return version_; }

  /// Whether the warning was said.
  static inline std::atomic<bool> said{false};

 private:
  cublasLtHandle_t handle_ = nullptr;
  std::size_t version_ = 0;
};

}  // namespace lockstep::detail::cuda
