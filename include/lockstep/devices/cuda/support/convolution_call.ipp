#pragma once

#include "lockstep/devices/cuda/support/convolution_call.hpp"

#include "lockstep/core/format_text.hpp"

namespace lockstep::detail::cuda {

void ConvolutionCall::run(CUstream stream, const Places& at) const {
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
  // The variant pack binds the graph's tensor ids to addresses. It is made per call: during replay
  // of a CUDA graph this function does not run.
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "the tensors of a convolution");
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span(std::as_const(names).data(), n))
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span(std::as_const(places).data(), n))
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, std::array<void*, 1>{at.workspace})
      .finalize();
  check(cudnn().cudnnSetStream(handle, stream), "setting cuDNN's stream");
  check(cudnn().cudnnBackendExecute(handle, plan->plan.get(), pack.get()), "running a convolution");
}

std::shared_ptr<CudnnPlan> SharedPlans::find(cudnnHandle_t handle, const std::string& json) {
  if (const auto known = plans_.find(json); known != plans_.end())
    // Weak references, so a plan is freed with the last layer that uses it.
    if (auto plan = known->second.lock()) return plan;
  std::optional<CudnnPlan> read = read_plan(CudnnTarget(handle), json);
  if (!read) return nullptr;
  auto plan = std::make_shared<CudnnPlan>(std::move(*read));
  plans_[json] = plan;
  return plan;
}

std::string SharedPlans::add(const std::shared_ptr<CudnnPlan>& plan) {
  std::string json = plan->json();
  if (!json.empty()) plans_[json] = plan;
  return json;
}

std::vector<std::shared_ptr<CudnnPlan>> offered_plans(cudnnHandle_t handle,
                                                      const AnyConvolution& op, std::size_t count,
                                                      ConvolutionPass pass, const CudnnRules& rules,
                                                      ConvolutionTail tail, std::string& why) {
  const std::size_t max_plans = rules.deterministic ? 1 : 8;
  std::vector<std::shared_ptr<CudnnPlan>> offered;
  try {
    const CudnnTarget target(handle);
    const ConvolutionGraph graph(target, op, static_cast<std::int64_t>(count), pass, rules, tail);
    std::string refusal;
    // A refusal matters only if no plan is left.
    for (CudnnPlan& plan : make_plans(target, graph, rules, max_plans, &refusal))
      offered.push_back(std::make_shared<CudnnPlan>(std::move(plan)));
    if (offered.empty() && !refusal.empty()) why = refusal;
  } catch (const DeviceError& error) {
    why = error.what();
  }
  return offered;
}

std::string describe_convolution(const AnyConvolution& op, std::size_t count, ConvolutionPass pass,
                                 const char* tail, std::string_view precision) {
  static constexpr std::array<const char*, 3> names{"a convolution", "the gradient of its input",
                                                    "the gradient of its kernel"};
  const char* const what = names[static_cast<std::size_t>(pass)];
  const auto axes = [&](int depth, int height, int width) {
    return op.over_images ? format_text("{}x{}", height, width)
                          : format_text("{}x{}x{}", depth, height, width);
  };
  return format_text("{} ({} x {} -> {}, kernel {}, strides {}, dilation {}, padding {}{}{}{})",
                     what, count, to_string(op.shown(op.in)), to_string(op.shown(op.out())),
                     axes(op.kernel.depth, op.kernel.height, op.kernel.width),
                     axes(op.strides.depth, op.strides.height, op.strides.width),
                     axes(op.dilation.depth, op.dilation.height, op.dilation.width),
                     axes(op.depths().before(), op.rows().before(), op.columns().before()),
                     op.groups > 1 ? format_text(", groups {}", op.groups) : std::string(), tail,
                     precision);
}

}  // namespace lockstep::detail::cuda
