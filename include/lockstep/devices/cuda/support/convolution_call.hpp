/// \file
/// A call of cuDNN for a pass of a convolution, and the words that tell one pass from another.
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

/// A finished plan and the handle that it was made with.
struct ConvolutionCall {
  cudnnHandle_t handle = nullptr;
  std::shared_ptr<CudnnPlan> plan;
  const char* title = "cuDNN convolution";  // for messages

  /// Tensors in the GPU's memory; null: the graph has no such.
  struct Places {
    const void *x, *w, *y, *bias = nullptr;
    std::byte* workspace;
  };

  void operator()(CudaContext& context, const Places& at) const {
    const auto word = [](const void* p) { return reinterpret_cast<std::uint64_t>(p); };
    context.commands().call(
        {word(plan.get()), word(at.x), word(at.w), word(at.y), word(at.bias), word(at.workspace)},
        [call = *this, at](CUstream stream) { call.run(stream, at); }, title);
  }

 private:
  LOCKSTEP_DECL void run(CUstream stream, const Places& at) const;
};

/// The plans of a GPU that are in use, by their JSON: a network has many layers of one shape, and
/// some engines are compiled when a plan is made.
class SharedPlans {
 public:
  /// Null if there is none and none can be made.
  LOCKSTEP_COLD_DECL std::shared_ptr<CudnnPlan> find(cudnnHandle_t handle, const std::string& json);
  /// A plan made elsewhere. Returns its JSON.
  LOCKSTEP_COLD_DECL std::string add(const std::shared_ptr<CudnnPlan>& plan);

 private:
  std::map<std::string, std::weak_ptr<CudnnPlan>> plans_;
};

/// Plans of a pass that cuDNN offers, the first one only if two runs must give the same bits; none
/// where it refuses the graph or each plan. `why`: cuDNN's words then, else as it was.
LOCKSTEP_COLD_DECL std::vector<std::shared_ptr<CudnnPlan>> offered_plans(
    cudnnHandle_t handle, const Conv2DOp& op, std::size_t count, ConvolutionPass pass,
    const CudnnRules& rules, ConvolutionTail tail, std::string& why);

/// All that tells one pass from another. `tail`: what it does behind the convolution, between
/// commas.
LOCKSTEP_COLD_DECL std::string describe_convolution(const Conv2DOp& op, std::size_t count,
                                                    ConvolutionPass pass, const char* tail,
                                                    std::string_view precision);

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/support/convolution_call.ipp"
#endif
