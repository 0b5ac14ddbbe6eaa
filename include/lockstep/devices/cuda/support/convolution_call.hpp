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

#include "lockstep/devices/cuda/context.hpp"
#include "lockstep/devices/cuda/cudnn/convolution.hpp"

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
  void run(CUstream stream, const Places& at) const {
    using Names = ConvolutionGraph;
    std::array<std::int64_t, 4> names{};
    std::array<void*, 4> places{};
    std::size_t n = 0;
    for (const auto& [name, place] : std::array<std::pair<std::int64_t, const void*>, 4>{
             {{Names::x, at.x}, {Names::w, at.w}, {Names::y, at.y}, {Names::bias, at.bias}}}) {
      if (place == nullptr) continue;
      names[n] = name;
      places[n++] = const_cast<void*>(place);
    }
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "the tensors of a convolution");
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span(std::as_const(names).data(), n))
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span(std::as_const(places).data(), n))
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, std::array<void*, 1>{at.workspace})
        .finalize();
    check(cudnn().cudnnSetStream(handle, stream), "giving cuDNN a stream");
    check(cudnn().cudnnBackendExecute(handle, plan->plan.get(), pack.get()),
          "running a convolution");
  }
};

/// The plans of a GPU that are in use, by their JSON: a network has many layers of one shape, and
/// some engines are compiled when a plan is made.
class SharedPlans {
 public:
  /// Null if there is none and none can be made.
  [[gnu::cold]] std::shared_ptr<CudnnPlan> find(cudnnHandle_t handle, const std::string& json) {
    if (const auto known = plans_.find(json); known != plans_.end())
      if (auto plan = known->second.lock()) return plan;
    std::optional<CudnnPlan> read = read_plan(CudnnTarget(handle), json);
    if (!read) return nullptr;
    auto plan = std::make_shared<CudnnPlan>(std::move(*read));
    plans_[json] = plan;
    return plan;
  }
  /// A plan made elsewhere. Returns its JSON.
  [[gnu::cold]] std::string add(const std::shared_ptr<CudnnPlan>& plan) {
    std::string json = plan->json();
    if (!json.empty()) plans_[json] = plan;
    return json;
  }

 private:
  std::map<std::string, std::weak_ptr<CudnnPlan>> plans_;
};

/// Plans of a pass that cuDNN offers, the first one only if two runs must give the same bits; none
/// where it refuses the graph or each plan. `why`: cuDNN's words then, else as it was.
[[gnu::cold]] inline std::vector<std::shared_ptr<CudnnPlan>> offered_plans(
    cudnnHandle_t handle, const Conv2DOp& op, std::size_t count, ConvolutionPass pass,
    const CudnnRules& rules, ConvolutionTail tail, std::string& why) {
  const std::size_t most_plans = rules.deterministic ? 1 : 8;
  std::vector<std::shared_ptr<CudnnPlan>> offered;
  try {
    const CudnnTarget target(handle);
    const ConvolutionGraph graph(target, op, static_cast<std::int64_t>(count), pass, rules, tail);
    std::string refusal;
    for (CudnnPlan& plan : make_plans(target, graph, rules, most_plans, &refusal))
      offered.push_back(std::make_shared<CudnnPlan>(std::move(plan)));
    if (offered.empty() && !refusal.empty()) why = refusal;
  } catch (const DeviceError& error) {
    why = error.what();
  }
  return offered;
}

/// All that tells one pass from another. `tail`: what it does behind the convolution, between
/// commas.
[[gnu::cold]] inline std::string describe_convolution(const Conv2DOp& op, std::size_t count,
                                                      ConvolutionPass pass, const char* tail,
                                                      std::string_view precision) {
  static constexpr std::array<const char*, 3> names{"a convolution", "the gradient of its input",
                                                    "the gradient of its kernel"};
  const char* const what = names[static_cast<std::size_t>(pass)];
  return text({what,
               " (",
               count,
               " x ",
               to_string(op.in),
               " -> ",
               to_string(op.out()),
               ", kernel ",
               op.kernel.height,
               "x",
               op.kernel.width,
               ", strides ",
               op.strides.height,
               "x",
               op.strides.width,
               ", dilation ",
               op.dilation.height,
               "x",
               op.dilation.width,
               ", padding ",
               op.rows().before(),
               "x",
               op.columns().before(),
               tail,
               precision,
               ")"});
}

}  // namespace lockstep::detail::cuda
