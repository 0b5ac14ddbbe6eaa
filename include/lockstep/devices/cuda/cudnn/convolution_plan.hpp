/// \file
/// Convolutions by cuDNN: a graph per pass, and execution plans made from it. Invariants: images
/// are NHWC and kernels out x height x width x in (volumes NDHWC, out x depth x height x width x in), the one layout that all engines support (cuDNN
/// 9.19 offers the same engines whatever strides the kernel's descriptor has); a graph is described
/// without a GPU, a plan for a GPU or for a description of one.
///
///     CudnnTarget + AnyConvolution -> ConvolutionGraph -> heuristics -> engines that CudnnRules allow
///                            -> CudnnPlan -> JSON -> read_plan, in the next process
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/cudnn/descriptor.hpp"
#include "lockstep/devices/cuda/support/any_convolution.hpp"

namespace lockstep::detail::cuda {

/// The GPU that plans are made for: that of a handle, or that of a description (JSON as cuDNN
/// writes it).
class CudnnTarget {
 public:
  /// The GPU of a handle.
  explicit CudnnTarget(cudnnHandle_t handle) : handle_(handle) {}
  /// A described GPU. \throws DeviceError if cuDNN rejects the description.
  LOCKSTEP_COLD_DECL explicit CudnnTarget(std::string_view json);

  /// Sets the target's attributes on each kind of descriptor.
  LOCKSTEP_DECL void set_graph_target(Descriptor& graph) const;
  LOCKSTEP_DECL void set_plan_target(Descriptor& plan) const;
  LOCKSTEP_DECL void set_heuristics_target(Descriptor& heuristics) const;

 private:
  cudnnHandle_t handle_ = nullptr;
  Descriptor properties_;
};

/// The three passes: y, dx, dw.
enum class ConvolutionPass { forward, backward_data, backward_weights };

/// The limits on cuDNN's arithmetic for a precision.
struct CudnnRules {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;  ///< of images, kernels, their gradients and the bias
  bool rounds_inputs = false;               ///< inputs of products may be rounded to TF32
  bool deterministic = false;               ///< two runs must give the same bits

  /// Whether an engine with these notes may be used. Engines that process float on tensor cores
  /// round the inputs to TF32; they report TENSOR_CORE, not DOWN_CONVERT_INPUTS.
  LOCKSTEP_DECL bool allow(const std::vector<cudnnBackendNumericalNote_t>& notes) const;
};

/// The epilogue of a forward pass. In single precision cuDNN 9.19 has no engine for a ReLU without
/// a bias.
enum class ConvolutionTail { none, bias, bias_and_relu };

/// The graph of one pass at one batch size. Its tensors are x or dx, w or dw, y or dy, and the
/// bias; values between the convolution and its epilogue are virtual: float, and never stored.
///
///     forward:  x, w -> convolution -> (sum) -> add bias -> (biased) -> ReLU -> y
class ConvolutionGraph {
 public:
  /// Ids of the tensors, by which an execution binds addresses.
  static constexpr std::int64_t x = 1, w = 2, y = 3, bias = 4, sum = 5, biased = 6;

  /// \throws DeviceError if cuDNN does not support the graph.
  LOCKSTEP_COLD_DECL ConvolutionGraph(const CudnnTarget& target, const AnyConvolution& op,
                                      std::int64_t count, ConvolutionPass pass,
                                      const CudnnRules& rules, ConvolutionTail tail);

  const Descriptor& get() const { return graph_; }

 private:
  /// A tensor with its channels last: `sizes` are (outer, depth, height, width, channels), the depth
  /// only for volumes.
  LOCKSTEP_DECL static Descriptor tensor(std::int64_t id, cudnnDataType_t type,
                                         std::int64_t alignment,
                                         const std::vector<std::int64_t>& sizes, bool is_virtual);
  /// Strides, dilation and padding of the convolution.
  LOCKSTEP_DECL void describe_geometry(const AnyConvolution& op);
  /// The operation of the pass, which writes tensor `result`.
  LOCKSTEP_DECL void describe_pass(ConvolutionPass pass, std::size_t result);
  /// to = mode(from), or mode(from, other).
  LOCKSTEP_DECL void describe_tail(cudnnPointwiseMode_t mode, std::size_t from,
                                   const Descriptor* other, std::size_t to);

  /// Alignment of packed weights, and of values in the arena, in bytes.
  static constexpr int max_alignment = 16;

  std::vector<Descriptor> tensors_, kinds_, operations_;
  Descriptor convolution_, graph_;
};

/// An engine with its configuration, ready to execute a graph.
struct CudnnPlan {
  Descriptor plan;
  std::int64_t workspace = 0;  ///< bytes

  /// The complete plan as text, for `read_plan`. Empty if this version of cuDNN cannot serialise
  /// it.
  LOCKSTEP_COLD_DECL std::string json() const;
};

/// Deserialises a plan, without heuristics. Nothing if cuDNN refuses: it checks its own version,
/// the driver's and the GPU's properties.
LOCKSTEP_COLD_DECL std::optional<CudnnPlan> read_plan(const CudnnTarget& target,
                                                      std::string_view json);

/// Up to `most` plans with workspaces of at most 1 GiB, fastest first according to cuDNN's
/// heuristics; none if no engine satisfies the rules. `refusal` receives cuDNN's message if an
/// offered engine could not be finalised. The reason may be transient: an engine that is compiled
/// at run time needs NVRTC and memory.
LOCKSTEP_COLD_DECL std::vector<CudnnPlan> make_plans(const CudnnTarget& target,
                                                     const ConvolutionGraph& graph,
                                                     const CudnnRules& rules, std::size_t most,
                                                     std::string* refusal = nullptr);

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/cudnn/convolution_plan.ipp"
#endif
