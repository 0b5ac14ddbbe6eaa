/// \file
/// The form of each layer in ONNX. Invariant: every layer and activation of the library has one,
/// recurrent layers with tanh and sigmoid; layers of other classes are rejected by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/onnx/graph_builder.hpp"
#include "lockstep/training/export/architecture.hpp"

namespace lockstep::detail {

/// The values of a parameter by name.
using ParameterValues = FunctionRef<std::vector<float>(const std::string& name)>;

/// Adds the nodes of one layer, and of its activation. \returns its output, which is the input of a
/// layer that does nothing at inference. `first` is the layer whose parameters it uses, mostly itself.
/// \throws UsageError.
LOCKSTEP_COLD_DECL std::shared_ptr<OnnxValue> add_layer(
    OnnxBuilder& graph, const LayerNode& layer, const LayerNode& first,
    const std::vector<std::shared_ptr<OnnxValue>>& inputs, ParameterValues values);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/onnx/layer_forms.ipp"
#endif
