/// \file
/// An optional library of an opened GPU. Invariant: a missing library is not an error; one warning
/// per process names what runs instead.
#pragma once

#include <atomic>
#include <cstddef>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/devices/cuda/libraries/cublaslt.hpp"
#include "lockstep/devices/cuda/libraries/cudnn.hpp"
#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

/// A library's handle, or null if the library is missing or cannot be opened. `Library` defines how
/// to open and close it, and what work it does.
template <class Library>
class Access {
 public:
  using Handle = typename Library::Handle;

  Access() {
    const DeviceSyncLock lock;
    try {
      Library::open(&handle_);
      version_ = Library::version();
    } catch (const DeviceError& error) {
      handle_ = nullptr;
      if (!logged.exchange(true))
        log(LogLevel::warning, format_text("{}; {} run on lockstep's own kernels, which are slower",
                                           error.what(), Library::work));
    }
  }
  ~Access() {
    const DeviceSyncLock lock;
    if (handle_ != nullptr) Library::close(handle_);
  }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

  /// Null if the library is unavailable.
  Handle handle() const { return handle_; }
  /// The library's version number; 0 if it is unavailable.
  std::size_t version() const { return version_; }

  /// Set once the warning has been logged.
  static inline std::atomic<bool> logged{false};

 private:
  Handle handle_ = nullptr;
  std::size_t version_ = 0;
};

/// cuDNN's handle; convolutions run on lockstep's own kernels without it.
struct CudnnLibrary {
  using Handle = cudnnHandle_t;
  static constexpr const char* work = "convolutions";
  static void open(Handle* handle) { check(cudnn().cudnnCreate(handle), "opening cuDNN"); }
  static void close(Handle handle) { cudnn().cudnnDestroy(handle); }
  static std::size_t version() { return cudnn().cudnnGetVersion(); }
};
using CudnnAccess = Access<CudnnLibrary>;

/// cuBLASLt's handle; dense layers run on lockstep's own kernels without it.
struct CublasLtLibrary {
  using Handle = cublasLtHandle_t;
  static constexpr const char* work = "dense layers";
  static void open(Handle* handle) { check(cublaslt().cublasLtCreate(handle), "opening cuBLASLt"); }
  static void close(Handle handle) { cublaslt().cublasLtDestroy(handle); }
  static std::size_t version() { return cublaslt().cublasLtGetVersion(); }
};
using CublasLtAccess = Access<CublasLtLibrary>;

}  // namespace lockstep::detail::cuda
