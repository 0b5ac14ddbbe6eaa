#pragma once

#include "lockstep/training/export/architecture.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <type_traits>

#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/files/atomic_file.hpp"

namespace lockstep {

const LayerOption::Value* LayerNode::option(std::string_view wanted) const {
  for (const LayerOption& o : options)
    if (o.name == wanted) return &o.value;
  return nullptr;
}

namespace detail {

/// Keras' name of an activation function; the class itself if Keras has none.
[[gnu::cold]] inline std::string activation_name(std::string_view class_name) {
  for (const ActivationName& n : activation_names)
    if (n.class_name == class_name) return std::string(n.name);
  return std::string(class_name);
}

/// The options among the members of an op.
class OptionList {
 public:
  /// `prefix` stands before each name.
  [[gnu::cold]] explicit OptionList(std::vector<LayerOption>& to, std::string prefix = "")
      : to_(to), prefix_(std::move(prefix)) {}

  /// Adds the members of `op`, those of ops within it first.
  [[gnu::cold]] void add(const OpValue& op) {
    if (const auto* members = std::get_if<OpValue::Group>(&op.value))
      for (std::size_t i = 0; i < members->size(); ++i) add_member((*members)[i], i);
  }

 private:
  static bool is_number(const OpValue& v) {
    return std::holds_alternative<long long>(v.value) ||
           std::holds_alternative<unsigned long long>(v.value) ||
           std::holds_alternative<float>(v.value) || std::holds_alternative<double>(v.value);
  }
  static bool is_whole(const OpValue& v) {
    return std::holds_alternative<long long>(v.value) ||
           std::holds_alternative<unsigned long long>(v.value);
  }
  [[gnu::cold]] static double number(const OpValue& v) {
    return std::visit(
        [](const auto& value) {
          using V = std::remove_cvref_t<decltype(value)>;
          if constexpr (std::is_same_v<V, float>) {
            // The double of 0.001f in decimal, 0.001, not the double next to the float.
            const std::string text = shortest_number(value);
            double result = 0;
            std::from_chars(text.data(), text.data() + text.size(), result);
            return result;
          } else if constexpr (std::is_arithmetic_v<V>) {
            return static_cast<double>(value);
          } else {
            return 0.0;
          }
        },
        v.value);
  }
  static std::int64_t whole(const OpValue& v) {
    const auto* value = std::get_if<long long>(&v.value);
    return value ? std::int64_t{*value}
                 : static_cast<std::int64_t>(std::get<unsigned long long>(v.value));
  }

  [[gnu::cold]] void set(const std::string& name, LayerOption::Value value) {
    for (LayerOption& o : to_)
      if (o.name == name) {
        o.value = std::move(value);
        return;
      }
    to_.push_back({name, std::move(value)});
  }

  [[gnu::cold]] void add_member(const OpValue& member, std::size_t position) {
    if (member.name == "in" || member.name.starts_with('.')) return;
    const std::string name = prefix_ + (member.name.empty() ? format_text("option_{}", position)
                                                            : std::string(member.name));
    if (const auto* shape = std::get_if<Shape>(&member.value)) {
      if (!member.name.empty())  // otherwise a shape that the op needs
        set(name,
            std::vector<std::int64_t>(shape->extent.begin(), shape->extent.begin() + shape->rank));
    } else if (const auto* group = std::get_if<OpValue::Group>(&member.value)) {
      add_group(name, member, *group);
    } else if (const auto* on = std::get_if<bool>(&member.value)) {
      set(name, *on);
    } else if (const auto* text = std::get_if<std::string>(&member.value)) {
      set(name, *text);
    } else if (is_whole(member)) {
      set(name, whole(member));
    } else if (is_number(member)) {
      set(name, number(member));
    }
  }

  [[gnu::cold]] void add_group(const std::string& name, const OpValue& member,
                               const OpValue::Group& group) {
    if (member.name == "along_steps") {
      along_steps_ = true;
      add(member);
    } else if (member.is_op && member.name.ends_with("activation")) {
      set(name, activation_name(member.layer));
      OptionList(to_, name + "_").add(member);
    } else if (member.is_op || !std::all_of(group.begin(), group.end(), is_number)) {
      add(member);
    } else {
      // A layer over steps has half of the numbers in Keras; the first ones are of the single row.
      const auto of_row = static_cast<std::ptrdiff_t>(along_steps_ ? group.size() / 2 : 0);
      const auto first = group.begin() + of_row;
      if (std::all_of(first, group.end(), is_whole)) {
        std::vector<std::int64_t> numbers;
        std::transform(first, group.end(), std::back_inserter(numbers), whole);
        set(name, std::move(numbers));
      } else {
        std::vector<double> numbers;
        std::transform(first, group.end(), std::back_inserter(numbers), number);
        set(name, std::move(numbers));
      }
    }
  }

  std::vector<LayerOption>& to_;
  std::string prefix_;
  bool along_steps_ = false;
};

/// The class of a layer in Keras; its own class if it is custom. The class of a layer of the
/// library follows from its op, since a user's class may be derived from it.
[[gnu::cold]] inline std::string keras_class(const Node& node, const OpValue& op,
                                             const Shape& out) {
  if (op.layer.empty()) return std::string(node.class_name);
  if (op.layer == "RowSlice") return "InputLayer";
  if (op.layer == "View") {
    if (node.class_name == "Reshape" || out.rank != 1) return "Reshape";
    return "Flatten";
  }
  if (op.layer != "AlongSteps") return std::string(op.layer);
  const auto& members = std::get<OpValue::Group>(op.value);
  std::string name(members.front().layer);  // the layer that works on images: "Conv2D"
  name.replace(name.rfind('2'), 1, "1");
  return name;
}

/// Whether a layer works along the last axis, which is an argument in Keras.
constexpr bool has_axis(std::string_view class_name) {
  for (const std::string_view one : {"BatchNormalization", "LayerNormalization", "Normalization"})
    if (class_name == one) return true;
  return false;
}

Architecture architecture_of(const DescribedGraph& graph, std::string_view name) {
  Architecture result{.name = std::string(name),
                      .input_shape = graph.shape(ValueId::batch),
                      .layers = {},
                      .output = value_name(graph.nodes, graph.output)};
  auto parameter = graph.parameters.begin();
  for (const Node& n : graph.nodes) {
    if (n.is_activation) {
      LayerNode& layer = result.layers.back();
      const OpValue op = graph.op(n);
      layer.options.push_back(
          {"activation", activation_name(keras_class(n, op, graph.shape(n.out)))});
      OptionList(layer.options, "activation_").add(op);
      layer.output_shape = graph.shape(n.out);
      continue;
    }
    LayerNode& layer = result.layers.emplace_back();
    layer.name = value_name(graph.nodes, n.out);
    if (n.first >= 0)
      layer.shared_with = layer_name(graph.nodes[static_cast<std::size_t>(n.first)]);
    layer.output_shape = graph.shape(n.out);
    const OpValue op = graph.op(n);
    layer.class_name = keras_class(n, op, layer.output_shape);
    for (const ValueId in : n.operands_of(graph.operands)) {
      layer.inputs.push_back(value_name(graph.nodes, in));
      layer.input_shapes.push_back(graph.shape(in));
    }
    if (layer.class_name != "Flatten") OptionList(layer.options).add(op);
    if (has_axis(layer.class_name)) layer.options.push_back({"axis", std::int64_t{-1}});
    for (; parameter != graph.parameters.end() && n.first < 0; ++parameter) {
      if (!is_of(*parameter, n)) break;
      layer.parameters.push_back(
          {parameter_name(*parameter), parameter->shape, parameter->trainable});
    }
  }
  return result;
}

void add_parts(Architecture& to, const DescribedGraph& graph, std::span<const RowPart> inputs,
               std::span<const RowPart> outputs, std::span<const ValueId> values) {
  for (const RowPart& p : inputs) {
    const std::string name(p.name);
    to.inputs.push_back({name, p.shape, p.offset, inputs.size() > 1 ? name : "input"});
  }
  for (std::size_t i = 0; i < outputs.size(); ++i)
    to.outputs.push_back({std::string(outputs[i].name), outputs[i].shape, outputs[i].offset,
                          outputs.size() > 1 ? value_name(graph.nodes, values[i]) : to.output});
}

/// Values as the text of a JSON array.
template <class Values, class ToText>
[[gnu::cold]] std::string json_array(const Values& values, const ToText& to_text) {
  std::string text;
  for (const auto& v : values) text += (text.empty() ? "" : ", ") + to_text(v);
  return "[" + text + "]";
}
[[gnu::cold]] inline std::string json_shape(const Shape& s) {
  return json_array(std::vector<int>(s.extent.begin(), s.extent.begin() + s.rank),
                    [](int extent) { return std::to_string(extent); });
}
[[gnu::cold]] inline std::string json_value(const LayerOption::Value& value) {
  return std::visit(
      []<class V>(const V& v) -> std::string {
        if constexpr (std::is_same_v<V, bool>)
          return v ? "true" : "false";
        else if constexpr (std::is_same_v<V, std::int64_t>)
          return std::to_string(v);
        else if constexpr (std::is_same_v<V, double>)
          return json_number(v);
        else if constexpr (std::is_same_v<V, std::string>)
          return json_string(v);
        else if constexpr (std::is_same_v<V, std::vector<std::int64_t>>)
          return json_array(v, [](std::int64_t n) { return std::to_string(n); });
        else
          return json_array(v, [](double n) { return json_number(n); });
      },
      value);
}

/// One layer as a JSON object on several lines.
[[gnu::cold]] inline std::string json_layer(const LayerNode& layer) {
  std::string options, parameters;
  for (const LayerOption& o : layer.options)
    options += format_text("{}{}: {}", options.empty() ? "" : ", ", json_string(o.name),
                           json_value(o.value));
  for (const LayerParameter& p : layer.parameters)
    parameters += format_text("{}\n        {{\"name\": {}, \"shape\": {}, \"trainable\": {}}}",
                              parameters.empty() ? "" : ",", json_string(p.name),
                              json_shape(p.shape), p.trainable);
  return format_text(
      "    {{\"name\": {}, \"class_name\": {},\n"
      "      \"inputs\": {}, \"input_shapes\": {}, \"output_shape\": {},\n"
      "      \"config\": {{{}}},\n"
      "      \"parameters\": [{}]{}}}",
      json_string(layer.name), json_string(layer.class_name), json_array(layer.inputs, json_string),
      json_array(layer.input_shapes, json_shape), json_shape(layer.output_shape), options,
      parameters,
      layer.shared_with.empty()
          ? ""
          : format_text(", \"shared_with\": {}", json_string(layer.shared_with)));
}

/// The inputs or outputs of a Graph as a member of the JSON object; empty if there are none.
[[gnu::cold]] inline std::string json_parts(const char* name,
                                            const std::vector<ArchitecturePart>& parts) {
  if (parts.empty()) return "";
  return format_text("  \"{}\": {},\n", name, json_array(parts, [](const ArchitecturePart& p) {
                       return format_text(
                           R"({{"name": {}, "shape": {}, "offset": {}, "layer": {}}})",
                           json_string(p.name), json_shape(p.shape), p.offset,
                           json_string(p.layer));
                     }));
}

}  // namespace detail

std::string to_json(const Architecture& architecture) {
  std::string layers;
  for (const LayerNode& layer : architecture.layers)
    layers += (layers.empty() ? "\n" : ",\n") + detail::json_layer(layer);
  return format_text(
      "{{\n  \"format\": \"lockstep.architecture\",\n  \"format_version\": 1,\n"
      "  \"library_version\": {},\n  \"name\": {},\n  \"input_shape\": {},\n  \"output\": {},\n"
      "{}{}  \"layers\": [{}\n  ]\n}}\n",
      detail::json_string(LOCKSTEP_VERSION), detail::json_string(architecture.name),
      detail::json_shape(architecture.input_shape), detail::json_string(architecture.output),
      detail::json_parts("inputs", architecture.inputs),
      detail::json_parts("outputs", architecture.outputs), layers);
}

void detail::write_architecture(const std::string& path, const Architecture& architecture) {
  AtomicFile file(path);
  file.write(to_json(architecture));
  file.commit();
}

}  // namespace lockstep
