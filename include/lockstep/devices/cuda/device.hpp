/// \file
/// NVIDIA GPUs as a device. Invariants: a device is a small value that names a GPU and its options;
/// the GPU is queried when it is opened, not before.
///
///                    activations   weights   inputs of products   sums of products
///     Cuda           float32       float32   float32              float32
///     CudaTf32       float32       float32   rounded to TF32      float32
///     CudaBFloat16   bfloat16      float32   bfloat16             float32
///     CudaFloat16    float16       float32   float16              float32, with loss scaling
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "lockstep/concepts/device.hpp"
#include "lockstep/core/add_item.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/devices/cuda/context.hpp"
#include "lockstep/devices/precision_policy.hpp"

namespace lockstep {

struct AddOp;
struct BatchNormalizationAddReLUOp;
struct BatchNormalizationOp;
struct BatchNormalizationReLUOp;
struct Conv2DOp;
struct ConvReLUOp;
struct ConvReLUPoolOp;
struct DenseOp;
struct DenseReLUOp;
struct MaxPooling2DOp;
struct ReLUOp;

template <class HostGroup>
class CudaGroup;

/// A GPU that runs cuDNN, cuBLASLt and lockstep's own kernels.
///
/// - `index`: the GPU, numbered as by CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, or its TensorFlow
///   name. -1: the first GPU, or GPU i for replica i of several.
/// - `options.graphs`: from its second occurrence on, a step is launched as one CUDA graph.
/// - `options.deterministic`: two runs give the same bits.
/// \code
///   ls::Model model{Net{}, ls::OneDevice<ls::Cuda>{}, loss, optimizer};
///   ls::OneDevice<ls::Cuda>{.on = {"/gpu:1"}}
///   ls::OneDevice<ls::Cuda>{.on = {"/gpu:0", {.deterministic = true}}}
/// \endcode
template <class Precision>
struct BasicCuda {
  using real = typename Precision::real;
  using activation = typename Precision::activation;
  using Context = CudaContext;
  using fusions = List<Fuse<ConvReLUPoolOp, Conv2DOp, ReLUOp, MaxPooling2DOp>,
                       Fuse<BatchNormalizationAddReLUOp, BatchNormalizationOp, AddOp, ReLUOp>,
                       Fuse<BatchNormalizationReLUOp, BatchNormalizationOp, ReLUOp>,
                       Fuse<ConvReLUOp, Conv2DOp, ReLUOp>, Fuse<DenseReLUOp, DenseOp, ReLUOp>>;
  static constexpr std::string_view name = "cuda";
  static constexpr std::string_view precision = Precision::name;
  static constexpr LossScaling loss_scaling = detail::loss_scaling_of<Precision>;
  static constexpr bool is_host = false;
  template <class HostGroup>
  using group = CudaGroup<HostGroup>;

  int index = -1;
  CudaOptions options{};

  BasicCuda() = default;
  BasicCuda(int gpu, const CudaOptions& o = {}) : index(gpu), options(o) {}
  /// \throws UsageError if the text does not name a GPU.
  BasicCuda(const char* gpu, const CudaOptions& o = {})
      : index(detail::cuda::parse_gpu(gpu)), options(o) {}
  bool operator==(const BasicCuda&) const = default;

  /// The number of GPUs visible to this process: a strategy's default number of replicas. \throws
  /// DeviceError if there is none.
  static std::size_t available() { return static_cast<std::size_t>(detail::cuda::count_gpus()); }

  /// UUIDs of the visible GPUs, comma-separated. Processes with equal lists share their GPUs.
  static std::string available_names() {
    std::string names;
    for (const Gpu& gpu : gpus()) add_item(names, ",", gpu.uuid);
    return names;
  }

  /// The UUID of one of them. \throws UsageError if there is no such GPU.
  static std::string available_name(int gpu) { return detail::cuda::find_gpu(gpu).uuid; }

  /// The context of the i-th of `replicas` local replicas. \throws UsageError if there is no such
  /// GPU, DeviceError if it cannot be used.
  Context open(std::size_t, std::size_t i) const {
    const int count = detail::cuda::count_gpus();
    const int ordinal = index >= 0 ? index : static_cast<int>(i % static_cast<std::size_t>(count));
    const Gpu gpu = detail::cuda::find_gpu(ordinal);
    detail::cuda::check_capability(gpu);
    detail::cuda::log_gpus();
    return Context(gpu, options);
  }
};

/// Single precision (IEEE float32).
using Cuda = BasicCuda<Float32>;
/// Mixed precision: bfloat16 activations on tensor cores, float32 weights.
using CudaBFloat16 = BasicCuda<MixedBFloat16>;
/// Mixed precision: float16 activations on tensor cores, float32 weights, and a scaled loss.
using CudaFloat16 = BasicCuda<MixedFloat16>;
/// float32, with the inputs of matrix products and convolutions rounded to TF32.
using CudaTf32 = BasicCuda<Tf32>;

static_assert(Device<Cuda> && Device<CudaBFloat16> && Device<CudaFloat16> && !HostDevice<Cuda>);
static_assert(ScalesLoss<CudaFloat16> && !ScalesLoss<Cuda> && !ScalesLoss<CudaBFloat16>);

}  // namespace lockstep
