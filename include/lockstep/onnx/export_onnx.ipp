#pragma once

#include "lockstep/onnx/export_onnx.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/files/atomic_file.hpp"
#include "lockstep/onnx/graph_builder.hpp"
#include "lockstep/onnx/layer_forms.hpp"

namespace lockstep::detail {

/// Before the values are copied, which takes memory. \throws UsageError above the limit.
[[gnu::cold]] inline void check_onnx_size(const Architecture& architecture) {
  std::size_t bytes = 0;
  for (const LayerNode& layer : architecture.layers)
    for (const LayerParameter& p : layer.parameters) bytes += p.shape.size() * sizeof(float);
  if (bytes > most_onnx_bytes) refuse_onnx_size(bytes);
}

std::string onnx_model(const Architecture& architecture, ParameterValues values) {
  check_onnx_size(architecture);
  OnnxBuilder graph;
  // Layers that do nothing at inference share the value of their input.
  std::map<std::string, std::shared_ptr<OnnxValue>> outputs;
  outputs["input"] = std::make_shared<OnnxValue>("input", architecture.input_shape, Channels::last);
  for (const LayerNode& layer : architecture.layers) {
    std::vector<std::shared_ptr<OnnxValue>> inputs;
    for (const std::string& name : layer.inputs) inputs.push_back(outputs.at(name));
    if (!outputs.emplace(layer.name, add_layer(graph, layer, inputs, values)).second)
      throw UsageError(
          "export_onnx: the name '{}' stands for two layers, or for a layer and the model's input; "
          "give the layer's class another name",
          layer.name);
  }
  OnnxValue& output = *outputs.at(architecture.output);
  graph.add_named("Identity", "output", {graph.use(output, Channels::last)});
  return graph.model(architecture.name, architecture.input_shape, output.shape());
}

void write_onnx(const std::string& path, const Architecture& architecture, ParameterValues values) {
  AtomicFile file(path);
  file.write(onnx_model(architecture, values));
  file.commit();
}

}  // namespace lockstep::detail
