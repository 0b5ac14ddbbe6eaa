#pragma once

#include "lockstep/onnx/export_onnx.hpp"

#include <map>
#include <memory>
#include <utility>

#include "lockstep/files/atomic_file.hpp"
#include "lockstep/onnx/graph_builder.hpp"
#include "lockstep/onnx/layer_forms.hpp"

namespace lockstep::detail {

std::string onnx_model(const Architecture& architecture, ParameterValues values) {
  OnnxBuilder graph;
  // Layers that do nothing at inference share the value of their input.
  std::map<std::string, std::shared_ptr<OnnxValue>> outputs;
  outputs["input"] = std::make_shared<OnnxValue>("input", architecture.input_shape, Channels::last);
  for (const LayerNode& layer : architecture.layers) {
    std::vector<std::shared_ptr<OnnxValue>> inputs;
    for (const std::string& name : layer.inputs) inputs.push_back(outputs.at(name));
    outputs[layer.name] = add_layer(graph, layer, inputs, values);
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
