/// \file
/// A cuDNN call for a pass of a convolution, and the description that identifies the pass.
/// Invariant: a call keeps its plan alive.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/context.hpp"
#include "lockstep/devices/cuda/cudnn/convolution_plan.hpp"

namespace lockstep::detail::cuda {

/// A finalised plan and the handle that it was made with.
struct ConvolutionCall {
  cudnnHandle_t handle = nullptr;
  std::shared_ptr<CudnnPlan> plan;
  const char* title = "cuDNN convolution";  // for messages

  /// Tensors in GPU memory; null if the graph does not have one.
  struct Places {
    const void *x, *w, *y, *bias = nullptr;
    std::byte* workspace;
  };

  /// Enqueues the plan. Its words are the plan and all addresses, so that a graph can replay it.
  void operator()(CudaContext& context, const Places& at) const {
    const auto word = [](const void* p) { return reinterpret_cast<std::uint64_t>(p); };
    context.commands().call(
        {word(plan.get()), word(at.x), word(at.w), word(at.y), word(at.bias), word(at.workspace)},
        [call = *this, at](CUstream stream) { call.run(stream, at); }, title);
  }

 private:
  LOCKSTEP_DECL void run(CUstream stream, const Places& at) const;
};

/// The plans in use on a GPU, by their JSON. A network has many layers of one shape, and some
/// engines are compiled when a plan is made.
class SharedPlans {
 public:
  /// A plan in use, or one restored from the JSON; null if cuDNN refuses.
  LOCKSTEP_COLD_DECL std::shared_ptr<CudnnPlan> find(cudnnHandle_t handle, const std::string& json);
  /// Registers a plan and returns its JSON.
  LOCKSTEP_COLD_DECL std::string add(const std::shared_ptr<CudnnPlan>& plan);

 private:
  std::map<std::string, std::weak_ptr<CudnnPlan>> plans_;
};

/// The plans that cuDNN offers for a pass; only the first one in deterministic mode. Empty if cuDNN
/// refuses the graph or every plan; `why` then receives cuDNN's message.
LOCKSTEP_COLD_DECL std::vector<std::shared_ptr<CudnnPlan>> offered_plans(
    cudnnHandle_t handle, const AnyConvolution& op, std::size_t count, ConvolutionPass pass,
    const CudnnRules& rules, ConvolutionTail tail, std::string& why);

/// A unique description of a pass, the key of its autotuning result. `tail`: the epilogue, between
/// commas.
LOCKSTEP_COLD_DECL std::string describe_convolution(const AnyConvolution& op, std::size_t count,
                                                    ConvolutionPass pass, const char* tail,
                                                    std::string_view precision);

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/support/convolution_call.ipp"
#endif
