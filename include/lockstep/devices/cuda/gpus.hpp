/// \file
/// The GPUs of this machine. Invariants: their order and number are the driver's, which follows
/// CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER; a GPU that cannot be used is refused before anything
/// is allocated on it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep {

/// One GPU, as the driver describes it.
struct Gpu {
  int ordinal = 0;           ///< among the visible ones
  std::string name;          ///< "NVIDIA H200"
  std::string uuid;          ///< "GPU-" and 32 digits in groups, as nvidia-smi prints it
  std::size_t memory = 0;    ///< bytes in all
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;
};

namespace detail::cuda {

/// CUDA 13 knows no GPU below Turing.
inline constexpr int min_capability = 75;

/// Starts the driver. \throws DeviceError if there is none, it is too old, or it has no GPU.
LOCKSTEP_COLD_DECL int count_gpus();

/// \throws DeviceError if the driver refuses.
LOCKSTEP_COLD_DECL Gpu describe_gpu(int ordinal);

/// \throws DeviceError if lockstep has no code for this GPU.
LOCKSTEP_COLD_DECL void check_capability(const Gpu& gpu);

/// The ordinal in "/gpu:0", "gpu:0", "GPU:0", "/device:GPU:0" or "0", as TensorFlow writes it.
/// \throws UsageError if it is no such name.
LOCKSTEP_COLD_DECL int parse_gpu(std::string_view name);

}  // namespace detail::cuda

/// All GPUs that this process may use, in their order.
/// \code
///   for (const ls::Gpu& gpu : ls::gpus()) std::puts(gpu.name.c_str());
/// \endcode
/// \throws DeviceError if there is no driver, it is too old, or it has no GPU.
LOCKSTEP_COLD_DECL std::vector<Gpu> gpus();

/// The GPUs as lines: ordinal, name, compute capability, memory, UUID.
LOCKSTEP_COLD_DECL std::string gpu_table(const std::vector<Gpu>& gpus);

namespace detail::cuda {

/// Once in a process.
LOCKSTEP_COLD_DECL void log_gpus();

}  // namespace detail::cuda
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/gpus.ipp"
#endif
