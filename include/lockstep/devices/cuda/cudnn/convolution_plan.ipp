#pragma once

#include "lockstep/devices/cuda/cudnn/convolution_plan.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep::detail::cuda {

CudnnTarget::CudnnTarget(std::string_view json)
    : properties_(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "a GPU") {
  properties_.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, json).finalize();
}

void CudnnTarget::set_graph_target(Descriptor& graph) const {
  if (handle_ != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle_);
}

void CudnnTarget::set_plan_target(Descriptor& plan) const {
  if (handle_ != nullptr)
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_);
  else
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, properties_);
}

void CudnnTarget::set_heuristics_target(Descriptor& heuristics) const {
  if (properties_) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties_);
}

bool CudnnRules::allow(const std::vector<cudnnBackendNumericalNote_t>& notes) const {
  const auto has = [&](cudnnBackendNumericalNote_t note) {
    return std::find(notes.begin(), notes.end(), note) != notes.end();
  };
  if (deterministic && has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) return false;
  if (has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return false;
  return rounds_inputs || type != CUDNN_DATA_FLOAT ||
         !(has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) || has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS));
}

ConvolutionGraph::ConvolutionGraph(const CudnnTarget& target, const AnyConvolution& op,
                                   std::int64_t count, ConvolutionPass pass,
                                   const CudnnRules& rules, ConvolutionTail tail) {
  const auto sizes = [&](std::int64_t outer, const Shape& s) {
    const Shape axes = op.shown(s);
    std::vector<std::int64_t> result{outer};
    result.insert(result.end(), axes.extent.begin(), axes.extent.begin() + axes.rank);
    return result;
  };
  const auto image = [&](std::int64_t id, const Shape& s, cudnnDataType_t type, bool is_virtual) {
    // The alignment of any example if the first has 16 bytes: a slice of a batch can begin
    // anywhere.
    const std::int64_t alignment =
        std::gcd(std::int64_t{max_alignment},
                 static_cast<std::int64_t>(s.size()) * (type == CUDNN_DATA_FLOAT ? 4 : 2));
    return tensor(id, type, alignment, sizes(count, s), is_virtual);
  };
  tensors_.push_back(image(x, op.in, rules.type, false));
  // cuDNN divides x's channels by the kernel's, which gives the number of groups.
  tensors_.push_back(tensor(w, rules.type, max_alignment,
                            sizes(op.filters, shape(op.kernel.depth, op.kernel.height,
                                                    op.kernel.width, op.group_channels())),
                            false));
  tensors_.push_back(image(y, op.out(), rules.type, false));
  describe_geometry(op);
  // The output of an operation: y for the last one, else a new virtual tensor.
  const auto result = [&](bool is_last, std::int64_t id) {
    if (is_last) return std::size_t{2};
    tensors_.push_back(image(id, op.out(), CUDNN_DATA_FLOAT, true));
    return tensors_.size() - 1;
  };
  const bool relu = tail == ConvolutionTail::bias_and_relu,
             adds = relu || tail == ConvolutionTail::bias;
  const std::size_t product = result(!adds, sum);
  describe_pass(pass, product);
  if (adds) {
    const std::size_t numbers = tensors_.size();
    tensors_.push_back(
        tensor(bias, rules.type, max_alignment, sizes(1, shape(1, 1, 1, op.filters)), false));
    const std::size_t all = result(!relu, biased);
    describe_tail(CUDNN_POINTWISE_ADD, product, &tensors_[numbers], all);
    if (relu) describe_tail(CUDNN_POINTWISE_RELU_FWD, all, nullptr, 2);
  }
  graph_ = Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "a convolution");
  target.set_graph_target(graph_);
  graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_).finalize();
}

Descriptor ConvolutionGraph::tensor(std::int64_t id, cudnnDataType_t type, std::int64_t alignment,
                                    const std::vector<std::int64_t>& sizes, bool is_virtual) {
  // cuDNN lists the channels second, whatever the layout; the strides encode it.
  std::vector<std::int64_t> order{sizes.front(), sizes.back()}, steps(sizes.size());
  order.insert(order.end(), sizes.begin() + 1, sizes.end() - 1);
  std::int64_t step = sizes.back();
  for (std::size_t axis = sizes.size(); axis-- > 2;) {
    steps[axis] = step;
    step *= order[axis];
  }
  steps[0] = step;
  steps[1] = 1;
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor");
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, order)
      .set(CUDNN_ATTR_TENSOR_STRIDES, steps)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual)
      .finalize();
  return d;
}

void ConvolutionGraph::describe_geometry(const AnyConvolution& op) {
  using Axes = std::array<std::int64_t, 3>;
  const Window depths = op.depths(), rows = op.rows(), columns = op.columns();
  const Axes strides{depths.stride, rows.stride, columns.stride},
      dilations{depths.dilation, rows.dilation, columns.dilation},
      before{depths.before(), rows.before(), columns.before()},
      after{depths.after(), rows.after(), columns.after()};
  convolution_ = Descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "a convolution");
  convolution_.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{op.over_images ? 2 : 3})
      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, op.axes(strides))
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, op.axes(dilations))
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, op.axes(before))
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, op.axes(after))
      .finalize();
}

// The three passes differ only in the names of their attributes.
void ConvolutionGraph::describe_pass(ConvolutionPass pass, std::size_t result) {
  struct Names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
  };
  static constexpr std::array<Names, 3> names{
      {{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
       {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
       {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}}};
  const Names& n = names[static_cast<std::size_t>(pass)];
  Descriptor op(n.type, "a pass of a convolution");
  op.set(n.convolution, convolution_)
      .set(n.x, tensors_[0])
      .set(n.w, tensors_[1])
      .set(n.y, tensors_[result])
      .set(n.alpha, 1.0f)
      .set(n.beta, 0.0f)
      .finalize();
  operations_.push_back(std::move(op));
}

void ConvolutionGraph::describe_tail(cudnnPointwiseMode_t mode, std::size_t from,
                                     const Descriptor* other, std::size_t to) {
  Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "a convolution's epilogue");
  kind.set(CUDNN_ATTR_POINTWISE_MODE, mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
      .finalize();
  Descriptor op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "a convolution's epilogue");
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors_[from]);
  if (other != nullptr) op.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *other);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors_[to]).finalize();
  kinds_.push_back(std::move(kind));
  operations_.push_back(std::move(op));
}

std::string CudnnPlan::json() const {
  try {
    return plan.characters(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
  } catch (const DeviceError&) {
    return {};
  }
}

std::optional<CudnnPlan> read_plan(const CudnnTarget& target, std::string_view json) {
  try {
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "a plan of a convolution");
    target.set_plan_target(plan);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, json).finalize();
    const std::int64_t workspace = plan.number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    return CudnnPlan{std::move(plan), workspace};
  } catch (const DeviceError&) {
    return std::nullopt;
  }
}

std::vector<CudnnPlan> make_plans(const CudnnTarget& target, const ConvolutionGraph& graph,
                                  const CudnnRules& rules, std::size_t most, std::string* refusal) {
  constexpr std::int64_t max_workspace = std::int64_t{1} << 30;
  const auto allowed = [&](const Descriptor& choice) {
    const std::vector<Descriptor> engine =
        choice.parts(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
    return !engine.empty() && rules.allow(engine[0].notes());
  };
  std::vector<CudnnPlan> plans;
  // Fallback engines work but are not tuned, so they are asked for only if mode A offers none.
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "the heuristics of a convolution");
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.get())
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    target.set_heuristics_target(heuristics);
    // No engine supports the graph in this mode.
    if (!heuristics.try_finalize()) continue;
    for (Descriptor& choice :
         heuristics.parts(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 64)) {
      if (plans.size() == most) return plans;
      if (!allowed(choice)) continue;
      Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "a plan of a convolution");
      target.set_plan_target(plan);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, choice);
      try {
        plan.finalize();
      } catch (const DeviceError& error) {
        if (refusal != nullptr) *refusal = error.what();
        continue;
      }
      const std::int64_t workspace = plan.number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
      // A plan is usable only if its workspace fits; its size is known after finalising.
      if (workspace <= max_workspace) plans.push_back({std::move(plan), workspace});
    }
    if (!plans.empty()) break;
  }
  return plans;
}

}  // namespace lockstep::detail::cuda
