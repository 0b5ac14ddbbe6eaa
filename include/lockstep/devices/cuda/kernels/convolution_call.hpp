/// \file
/// A call of cuDNN for a pass of a convolution, and the words that tell one pass from another.
/// Invariant: a call keeps its plan alive.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
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

  /// Tensors in the GPU's memory; null: the graph has no such.
  struct Places {
    const void *x, *w, *y, *bias = nullptr;
    float *sums = nullptr, *squares = nullptr;
    std::byte* workspace;
  };

  std::size_t workspace() const { return static_cast<std::size_t>(plan->workspace); }

  void operator()(CudaContext& context, const Places& at) const {
    const auto word = [](const void* p) { return reinterpret_cast<std::uint64_t>(p); };
    context.commands().call({word(plan.get()), word(at.x), word(at.w), word(at.y), word(at.bias),
                             word(at.sums), word(at.squares), word(at.workspace)},
                            [call = *this, at](CUstream stream) { call.run(stream, at); });
  }

 private:
  void run(CUstream stream, const Places& at) const {
    using Names = ConvolutionGraph;
    std::array<std::int64_t, 6> names{};
    std::array<void*, 6> places{};
    std::size_t n = 0;
    for (const auto& [name, place] :
         std::array<std::pair<std::int64_t, const void*>, 6>{{{Names::x, at.x},
                                                              {Names::w, at.w},
                                                              {Names::y, at.y},
                                                              {Names::bias, at.bias},
                                                              {Names::sums, at.sums},
                                                              {Names::squares, at.squares}}}) {
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

/// Plans of a pass that cuDNN offers, the workspaces of reasonable size; none where it refuses the
/// graph. `why`: cuDNN's words then, else as it was.
[[gnu::cold]] inline std::vector<std::shared_ptr<CudnnPlan>> offered_plans(
    cudnnHandle_t handle, const Conv2DOp& op, std::size_t count, ConvolutionPass pass,
    const CudnnRules& rules, ConvolutionTail tail, std::string& why) {
  /// How many of cuDNN's engines are tried, and what they may ask for.
  constexpr std::size_t most_plans = 8;
  constexpr std::int64_t most_workspace = std::int64_t{1} << 30;
  std::vector<std::shared_ptr<CudnnPlan>> offered;
  try {
    const CudnnTarget target(handle);
    const ConvolutionGraph graph(target, op, static_cast<std::int64_t>(count), pass, rules, tail);
    for (CudnnPlan& plan : make_plans(target, graph, rules, most_plans))
      if (plan.workspace <= most_workspace)
        offered.push_back(std::make_shared<CudnnPlan>(std::move(plan)));
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
