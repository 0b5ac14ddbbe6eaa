/// \file
/// The parameters of a model by name. Invariant: names and shapes are Keras', the order is that of
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
#include "lockstep/layers/flatten.hpp"
#include "lockstep/model/graph.hpp"

namespace lockstep {

/// One named parameter and its place in the flat buffers.
struct ParameterInfo {
  std::string name;  ///< "conv2d_1/kernel"
  Shape shape;
  std::size_t offset = 0;  ///< in the weights, or in the state if not trainable
  bool trainable = true;
  std::size_t size() const { return shape.size(); }
};

namespace detail {

/// The layer that makes a value, or the input of the model.
LOCKSTEP_COLD_DECL std::string value_name(std::span<const Node> nodes, ValueId value);

/// "conv2d_1/kernel".
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

/// \throws UsageError, which lists the names, if there is no such parameter.
LOCKSTEP_COLD_DECL ParameterInfo parameter_named(std::span<const NamedParameter> parameters,
                                                 std::string_view name);

/// Whether a layer of this name takes the model's input, as it is or in another shape.
template <class Net>
[[gnu::cold]] bool is_first_layer(std::string_view layer) {
  constexpr int view = index_in<ViewOp>(typename std::remove_cvref_t<decltype(Net::graph)>::ops{});
  ValueId input = ValueId::batch;
  for (int i = 0; i < Net::graph.nodes; ++i) {
    const Node& n = Net::graph.node[static_cast<std::size_t>(i)];
    if (n.in0 != input) continue;
    if (layer_name(n.name, n.ordinal) == layer) return true;
    if (n.type == view) input = n.out;
  }
  return false;
}

template <std::size_t N>
struct PenaltySegments {
  std::array<PenaltySegment, N> segment{};
  std::size_t count = 0;
  constexpr const PenaltySegment* begin() const { return segment.data(); }
  constexpr const PenaltySegment* end() const { return segment.data() + count; }
  constexpr std::size_t size() const { return count; }
};

/// Neighbours with the same penalty joined, so that a model without penalties is one segment.
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

/// Initial values: a function of (seed, parameter name) alone.
template <class Net, class T>
void initialize_parameters(std::uint64_t seed, std::span<T> weights, std::span<T> state) {
  for (int i = 0; i < Net::graph.parameters; ++i) {
    const NamedParameter& p = Net::graph.parameter[static_cast<std::size_t>(i)];
    std::vector<double> values(p.shape.size());
    Philox generator(mix(seed, hash_name(parameter_name(p))));
    p.initializer(generator, p.shape, p.fans, values);
    T* const to = (p.trainable ? weights : state).data() + p.offset;
    for (std::size_t k = 0; k < values.size(); ++k) to[k] = static_cast<T>(values[k]);
  }
}

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/parameters.ipp"
#endif
