/// \file
/// The architecture of a model as a plain run-time value, and as JSON. Invariants: names, classes
/// and options are Keras'; the value depends on the network only, not on its weights or device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/row_part.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/training/export/op_values.hpp"

namespace lockstep {

/// An argument of a layer's constructor in Keras: "strides" with the value {2, 2}.
struct LayerOption {
  using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                             std::vector<double>>;
  std::string name;
  Value value;
};

/// A parameter of a layer: "conv2d/kernel".
struct LayerParameter {
  std::string name;
  Shape shape;
  bool trainable = true;
};

/// One layer. Shapes are those of one example. An activation that was given as an option is part of
/// its layer: the option "activation" is then Keras' name of it ("relu") or, for one that Keras
/// does not have, its class; an option of its own follows as "activation_negative_slope". A further
/// call of a shared layer is a node without parameters, and so is a layer with tied weights.
struct LayerNode {
  std::string name;                 ///< unique: "conv2d_1", "dense[1]" for a second call of "dense"
  std::string class_name;           ///< in Keras: "Conv2D"; of a custom layer its own
  std::vector<std::string> inputs;  ///< names of layers, or "input"
  std::vector<Shape> input_shapes;
  Shape output_shape;
  std::vector<LayerOption> options;
  std::vector<LayerParameter> parameters;
  std::string shared_with{};  ///< the layer whose parameters it uses; empty: its own

  /// The option of this name, or null.
  LOCKSTEP_COLD_DECL const LayerOption::Value* option(std::string_view wanted) const;
};

/// A named input or output of a Graph.
struct ArchitecturePart {
  std::string name;
  Shape shape;
  std::size_t offset = 0;  ///< elements from the start of the row
  std::string layer;       ///< the layer that has the value, or "input"
};

/// The layers of a model in the order of the forward pass.
/// \code
///   for (const ls::LayerNode& layer : model.architecture().layers)
///     std::cout << layer.name << " (" << layer.class_name << ")\n";
/// \endcode
struct Architecture {
  std::string name;  ///< of the network's class: "Cnn"
  Shape input_shape;
  std::vector<LayerNode> layers;
  std::string output;  ///< the layer whose output is the model's, or "input"
  std::vector<ArchitecturePart> inputs{}, outputs{};  ///< of a Graph, otherwise empty
};

/// The architecture as JSON, with the versions of the format and of the library. The format is
/// described in docs/export.md.
LOCKSTEP_COLD_DECL std::string to_json(const Architecture& architecture);

namespace detail {

/// The layer and Keras' function of each activation of the library.
struct ActivationName {
  std::string_view class_name, name;
};
inline constexpr std::array<ActivationName, 11> activation_names{{{"ELU", "elu"},
                                                                  {"GELU", "gelu"},
                                                                  {"LeakyReLU", "leaky_relu"},
                                                                  {"LogSoftmax", "log_softmax"},
                                                                  {"ReLU", "relu"},
                                                                  {"ReLU6", "relu6"},
                                                                  {"Sigmoid", "sigmoid"},
                                                                  {"SiLU", "silu"},
                                                                  {"Softmax", "softmax"},
                                                                  {"Softplus", "softplus"},
                                                                  {"Tanh", "tanh"}}};

LOCKSTEP_COLD_DECL Architecture architecture_of(const DescribedGraph& graph, std::string_view name);

/// Adds the inputs and outputs of a Graph. `values`: those of the outputs.
LOCKSTEP_COLD_DECL void add_parts(Architecture& to, const DescribedGraph& graph,
                                  std::span<const RowPart> inputs, std::span<const RowPart> outputs,
                                  std::span<const ValueId> values);

/// Writes to_json(architecture), atomically. \throws FileError.
LOCKSTEP_COLD_DECL void write_architecture(const std::string& path,
                                           const Architecture& architecture);

}  // namespace detail

/// The architecture of a network.
/// \code
///   const ls::Architecture cnn = ls::architecture<Cnn>();
/// \endcode
template <class Net>
Architecture architecture() {
  const detail::DescribedGraph graph = detail::described_graph<Net>();
  Architecture result = detail::architecture_of(graph, detail::class_name<Net>());
  if constexpr (requires { Net::inputs; })
    detail::add_parts(result, graph, Net::inputs, Net::outputs, Net::graph.parts);
  return result;
}

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/export/architecture.ipp"
#endif
