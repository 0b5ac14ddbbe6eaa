#pragma once

#include "lockstep/tensorboard/model_graph.hpp"

#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep {

namespace detail {
/// "true", "32", "same", "(2, 2)".
[[gnu::cold]] inline std::string text_of(const LayerOption::Value& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using V = std::remove_cvref_t<decltype(v)>;
        if constexpr (std::same_as<V, std::vector<std::int64_t>> ||
                      std::same_as<V, std::vector<double>>) {
          std::string text;
          for (const auto element : v) add_item(text, ", ", format_text("{}", element));
          return "(" + text + ")";
        } else {
          return format_text("{}", v);
        }
      },
      value);
}
/// "dense", and "dense/call_1" for the further call "dense[1]".
[[gnu::cold]] inline std::string scope_of(const LayerNode& layer) {
  const std::size_t call = layer.name.find('[');
  if (call == std::string::npos) return layer.name;
  return layer.name.substr(0, call) + "/call_" +
         layer.name.substr(call + 1, layer.name.size() - call - 2);
}
}  // namespace detail

std::vector<GraphNode> graph_of(const Architecture& model) {
  std::vector<GraphNode> nodes{{"input", "Input", {}, model.input_shape, {}}};
  std::map<std::string, std::string> node_of{{"input", "input"}};  // by the layer's name
  for (const LayerNode& layer : model.layers) {
    GraphNode node{detail::scope_of(layer) + "/" + layer.class_name,
                   layer.class_name,
                   {},
                   layer.output_shape,
                   {}};
    for (const std::string& input : layer.inputs) node.inputs.push_back(node_of.at(input));
    for (const LayerParameter& p : layer.parameters) {
      nodes.push_back({p.name,
                       "Parameter",
                       {},
                       std::nullopt,
                       {{"shape", to_string(p.shape)}, {"trainable", p.trainable ? "yes" : "no"}}});
      node.inputs.push_back(p.name);
    }
    for (const LayerNode& first : model.layers)
      if (first.name == layer.shared_with)
        for (const LayerParameter& p : first.parameters) node.inputs.push_back(p.name);
    for (const LayerOption& option : layer.options)
      node.attributes.emplace_back(option.name, detail::text_of(option.value));
    node_of[layer.name] = node.name;
    nodes.push_back(std::move(node));
  }
  return nodes;
}

}  // namespace lockstep
