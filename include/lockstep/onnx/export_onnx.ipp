#pragma once

#include "lockstep/onnx/export_onnx.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string_view>
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

/// Whether each layer is needed for the outputs: the row of several ones is not.
[[gnu::cold]] inline std::vector<bool> needed_layers(const Architecture& architecture,
                                                     const std::vector<ArchitecturePart>& outputs) {
  std::set<std::string_view> wanted;
  for (const ArchitecturePart& p : outputs) wanted.insert(p.layer);
  std::vector<bool> result(architecture.layers.size());
  for (std::size_t i = result.size(); i-- > 0;) {
    const LayerNode& layer = architecture.layers[i];
    result[i] = wanted.contains(layer.name);
    if (result[i]) wanted.insert(layer.inputs.begin(), layer.inputs.end());
  }
  return result;
}

std::string onnx_model(const Architecture& architecture, ParameterValues values) {
  check_onnx_size(architecture);
  std::vector<ArchitecturePart> parts_in = architecture.inputs, parts_out = architecture.outputs;
  const Shape& row = architecture.input_shape;
  if (parts_in.empty()) parts_in.push_back({"input", row, 0, "input"});
  if (parts_out.empty()) {
    Shape shape = row;
    for (const LayerNode& layer : architecture.layers)
      if (layer.name == architecture.output) shape = layer.output_shape;
    parts_out.push_back({"output", shape, 0, architecture.output});
  }
  std::vector<std::string> reserved;
  for (const ArchitecturePart& p : parts_in) reserved.push_back(p.name);
  for (const ArchitecturePart& p : parts_out) reserved.push_back(p.name);
  OnnxBuilder graph(reserved);
  // Layers that do nothing at inference share the value of their input.
  std::map<std::string, std::shared_ptr<OnnxValue>> outputs;
  for (const ArchitecturePart& p : parts_in)
    outputs[p.layer] = std::make_shared<OnnxValue>(p.name, p.shape, Channels::last);
  const std::vector<bool> needed = needed_layers(architecture, parts_out);
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const LayerNode& layer = architecture.layers[i];
    // A part of the row is an input of the graph.
    const bool is_part = parts_in.size() > 1 && std::any_of(parts_in.begin(), parts_in.end(),
                                                            [&](const ArchitecturePart& p) {
                                                              return p.layer == layer.name;
                                                            });
    if (!needed[i] || is_part) continue;
    std::vector<std::shared_ptr<OnnxValue>> inputs;
    for (const std::string& name : layer.inputs) inputs.push_back(outputs.at(name));
    const LayerNode* first = &layer;
    for (const LayerNode& other : architecture.layers)
      if (other.name == layer.shared_with) first = &other;
    if (!outputs.emplace(layer.name, add_layer(graph, layer, *first, inputs, values)).second)
      throw UsageError(
          "export_onnx: the name '{}' stands for two layers, or for a layer and the model's input; "
          "give the layer's class another name",
          layer.name);
  }
  for (const ArchitecturePart& p : parts_out)
    graph.add_named("Identity", p.name, {graph.use(*outputs.at(p.layer), Channels::last)});
  return graph.model(architecture.name, parts_in, parts_out);
}

void write_onnx(const std::string& path, const Architecture& architecture, ParameterValues values) {
  AtomicFile file(path);
  file.write(onnx_model(architecture, values));
  file.commit();
}

}  // namespace lockstep::detail
