/// \file
/// Convolutions by cuDNN: the graphs of their passes, and plans made of them. Invariants: images
/// are NHWC, kernels out x height x width x in, which is the one layout that all engines know
/// (cuDNN 9.19 offers the same engines whatever steps the kernel's descriptor has); a graph is
/// described without a GPU, a plan for one, or for a description of one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/cudnn/descriptor.hpp"
#include "lockstep/layers/conv2d.hpp"

namespace lockstep::detail::cuda {

/// For which GPU plans are made: a handle's, or that of a description (JSON, as cuDNN writes it).
class CudnnTarget {
 public:
  explicit CudnnTarget(cudnnHandle_t handle) : handle_(handle) {}
  LOCKSTEP_COLD_DECL explicit CudnnTarget(std::string_view json);

  LOCKSTEP_DECL void set_graph_target(Descriptor& graph) const;
  LOCKSTEP_DECL void set_plan_target(Descriptor& plan) const;
  LOCKSTEP_DECL void set_heuristics_target(Descriptor& heuristics) const;

 private:
  cudnnHandle_t handle_ = nullptr;
  Descriptor properties_;
};

enum class ConvolutionPass { forward, backward_data, backward_weights };

/// What cuDNN may do for a precision.
struct CudnnRules {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;  ///< of images, kernels, their gradients, the bias
  bool rounds_inputs = false;               ///< products may be taken in TF32
  bool deterministic = false;               ///< two runs must give the same bits

  /// Whether an engine with these notes may be used. Engines that take float on tensor cores round
  /// the factors to TF32; they say so by TENSOR_CORE, not by DOWN_CONVERT_INPUTS.
  LOCKSTEP_DECL bool allow(const std::vector<cudnnBackendNumericalNote_t>& notes) const;
};

/// What forward does behind a convolution. In single precision cuDNN 9.19 has no engine for a ReLU
/// without a bias.
enum class ConvolutionTail { none, bias, bias_and_relu };

/// The graph of one pass at one batch size. Its tensors: x or dx, w or dw, y or dy, the bias;
/// what lies between a convolution and its tail is in float and never stored.
class ConvolutionGraph {
 public:
  static constexpr std::int64_t x = 1, w = 2, y = 3, bias = 4, sum = 5, biased = 6;

  LOCKSTEP_COLD_DECL ConvolutionGraph(const CudnnTarget& target, const Conv2DOp& op,
                                      std::int64_t count, ConvolutionPass pass,
                                      const CudnnRules& rules, ConvolutionTail tail);

  const Descriptor& get() const { return graph_; }

 private:
  LOCKSTEP_DECL static Descriptor tensor(std::int64_t id, cudnnDataType_t type,
                                         std::int64_t alignment,
                                         const std::array<std::int64_t, 4>& sizes,
                                         const std::array<std::int64_t, 4>& steps, bool is_virtual);
  LOCKSTEP_DECL void describe_geometry(const Conv2DOp& op);
  LOCKSTEP_DECL void describe_pass(ConvolutionPass pass, std::size_t result);
  /// to = mode(from), or mode(from, other).
  LOCKSTEP_DECL void describe_tail(cudnnPointwiseMode_t mode, std::size_t from,
                                   const Descriptor* other, std::size_t to);

  /// Of an arena's values and of packed weights, in bytes.
  static constexpr int max_alignment = 16;

  std::vector<Descriptor> tensors_, kinds_, operations_;
  Descriptor convolution_, graph_;
};

/// A way to run a graph: an engine with its choices, ready to be run.
struct CudnnPlan {
  Descriptor plan;
  std::int64_t workspace = 0;  ///< bytes

  /// All that the plan is made of, for `read_plan`. Empty if this version of cuDNN cannot write it.
  LOCKSTEP_COLD_DECL std::string json() const;
};

/// The plan of a JSON text, made without heuristics. Nothing if cuDNN refuses: it checks its own
/// version, the driver's and the GPU's properties.
LOCKSTEP_COLD_DECL std::optional<CudnnPlan> read_plan(const CudnnTarget& target,
                                                      std::string_view json);

/// Up to `most` plans with workspaces of at most 1 GiB, in the order in which
/// cuDNN's heuristics expect them to be fast; none if cuDNN has no engine that keeps the rules.
/// `refusal`: cuDNN's words if an engine that it offered could not be made ready. The reason may be
/// transient: an engine that is compiled at run time needs NVRTC and memory.
LOCKSTEP_COLD_DECL std::vector<CudnnPlan> make_plans(const CudnnTarget& target,
                                                     const ConvolutionGraph& graph,
                                                     const CudnnRules& rules, std::size_t most,
                                                     std::string* refusal = nullptr);

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/cudnn/convolution_plan.ipp"
#endif
