/// \file
/// The parameters of a model by name. Invariants: names and shapes are Keras'; the order is that of
/// the layers.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/parameter.hpp"
#include "lockstep/layers/reshaping/flatten.hpp"
#include "lockstep/model/graph.hpp"

namespace lockstep {

/// A named parameter and its offset in the flat buffers.
struct ParameterInfo {
  std::string name;  ///< "conv2d_1/kernel"
  Shape shape;
  std::size_t offset = 0;  ///< in the weights, or in the state if not trainable
  bool trainable = true;
  std::size_t size() const { return shape.size(); }
};

namespace detail {

/// Name of the layer that produces a value, "dense", with the number of a further call, "dense[1]";
/// "input" for the model's input.
LOCKSTEP_COLD_DECL std::string value_name(std::span<const Node> nodes, ValueId value);

/// Keras' name of a parameter: "conv2d_1/kernel", "decoder/conv2d_1/kernel".
LOCKSTEP_COLD_DECL std::string parameter_name(const NamedParameter& p);

template <class Net>
constexpr std::span<const NamedParameter> named_parameters() {
  return {Net::graph.parameter.data(), static_cast<std::size_t>(Net::graph.parameters)};
}

LOCKSTEP_COLD_DECL std::vector<ParameterInfo> parameters_of(
    std::span<const NamedParameter> parameters);
template <class Net>
std::vector<ParameterInfo> parameters_of() {
  return parameters_of(named_parameters<Net>());
}

/// The parameter of this name. \throws UsageError listing all names if there is none.
LOCKSTEP_COLD_DECL ParameterInfo parameter_named(std::span<const NamedParameter> parameters,
                                                 std::string_view name);
/// The same for a gradient. \throws UsageError also for a non-trainable parameter.
LOCKSTEP_COLD_DECL ParameterInfo
trainable_parameter_named(std::span<const NamedParameter> parameters, std::string_view name);

/// Whether the layer of this name reads the model's input, possibly through views (Flatten,
/// Reshape).
template <class Net>
[[gnu::cold]] bool is_first_layer(std::string_view layer) {
  constexpr int view = index_in<ViewOp>(typename std::remove_cvref_t<decltype(Net::graph)>::ops{});
  ValueId input = ValueId::batch;
  for (int i = 0; i < Net::graph.nodes; ++i) {
    const Node& n = Net::graph.node[static_cast<std::size_t>(i)];
    if (Net::graph.operand[n.operands_begin] != input) continue;
    if (layer_name(n) == layer) return true;
    if (n.type == view) input = n.out;
  }
  return false;
}

/// A fixed-capacity list of segments, computed at compile time.
template <std::size_t N>
struct PenaltySegments {
  std::array<PenaltySegment, N> segment{};
  std::size_t count = 0;
  constexpr const PenaltySegment* begin() const { return segment.data(); }
  constexpr const PenaltySegment* end() const { return segment.data() + count; }
  constexpr std::size_t size() const { return count; }
};

/// Segments of the weights by penalty. Neighbours with equal penalties are joined, so a model
/// without penalties has one segment.
template <class Net>
constexpr auto penalty_segments() {
  PenaltySegments<static_cast<std::size_t>(Net::graph.parameters) + 1> result;
  for (int i = 0; i < Net::graph.parameters; ++i) {
    const NamedParameter& p = Net::graph.parameter[static_cast<std::size_t>(i)];
    if (!p.trainable) continue;
    const std::size_t end = p.offset + p.shape.size();
    if (result.count > 0 && result.segment[result.count - 1].penalty == p.penalty)
      result.segment[result.count - 1].end = end;
    else
      result.segment[result.count++] = {p.offset, end, p.penalty};
  }
  return result;
}

/// The generator of a parameter's initial values: a function of (seed, parameter name) only, so that
/// adding a layer does not change the other layers' values.
[[gnu::cold]] inline Philox generator_of(const NamedParameter& p, std::uint64_t seed) {
  return Philox(mix(seed, hash_name(parameter_name(p))));
}
/// Sets the initial values.
template <class T>
void initialize_parameters(std::span<const NamedParameter> parameters, std::uint64_t seed,
                           std::span<T> weights, std::span<T> state) {
  for (const NamedParameter& p : parameters) {
    std::vector<double> values(p.shape.size());
    Philox generator = generator_of(p, seed);
    p.initializer(generator, p.shape, p.fans, values);
    T* const to = (p.trainable ? weights : state).data() + p.offset;
    for (std::size_t k = 0; k < values.size(); ++k) to[k] = static_cast<T>(values[k]);
  }
}
template <class Net, class T>
void initialize_parameters(std::uint64_t seed, std::span<T> weights, std::span<T> state) {
  initialize_parameters(named_parameters<Net>(), seed, weights, state);
}

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/parameters.ipp"
#endif
