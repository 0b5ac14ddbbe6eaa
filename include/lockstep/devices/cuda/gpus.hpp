/// \file
/// The GPUs of this machine. Invariants: order and numbering are the driver's, which follow
/// CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER; an unsupported GPU is rejected before anything is
/// allocated on it.
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
  int ordinal = 0;           ///< index among the visible GPUs
  std::string name;          ///< "NVIDIA H200"
  std::string uuid;          ///< "GPU-" and 32 digits in groups, as nvidia-smi prints it
  std::size_t memory = 0;    ///< total, in bytes
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;
  /// FLOP/s of multiply-adds in float32, without tensor cores, at the clock that the driver names:
  /// of each multiprocessor 64 in a cycle up to compute capability 8.0, 128 later. Source: CUDA C++
  /// Programming Guide, throughput of native arithmetic instructions.
  double float32_flops = 0;
};

namespace detail::cuda {

/// CUDA 13 supports Turing and later.
inline constexpr int min_capability = 75;

/// Initialises the driver and counts the visible GPUs. \throws DeviceError if the driver is missing
/// or too old, or if there is no GPU.
LOCKSTEP_COLD_DECL int count_gpus();

/// Queries the driver. \throws DeviceError.
LOCKSTEP_COLD_DECL Gpu describe_gpu(int ordinal);

/// The same for a GPU that the program has named. \throws UsageError if it does not exist.
LOCKSTEP_COLD_DECL Gpu find_gpu(int ordinal);

/// Rejects a GPU that CUDA 13 does not support. \throws DeviceError.
LOCKSTEP_COLD_DECL void check_capability(const Gpu& gpu);

/// The ordinal in "/gpu:0", "gpu:0", "GPU:0", "/device:GPU:0" or "0", as TensorFlow writes it.
/// \throws UsageError for any other text.
LOCKSTEP_COLD_DECL int parse_gpu(std::string_view name);

}  // namespace detail::cuda

/// All GPUs visible to this process, in the driver's order.
/// \code
///   for (const ls::Gpu& gpu : ls::gpus()) std::puts(gpu.name.c_str());
/// \endcode
/// \throws DeviceError if the driver is missing or too old, or if there is no GPU.
LOCKSTEP_COLD_DECL std::vector<Gpu> gpus();

/// One line per GPU: ordinal, name, compute capability, memory, UUID.
LOCKSTEP_COLD_DECL std::string gpu_table(const std::vector<Gpu>& gpus);

namespace detail::cuda {

/// Logs the table of GPUs, once per process.
LOCKSTEP_COLD_DECL void log_gpus();

}  // namespace detail::cuda
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/gpus.ipp"
#endif
