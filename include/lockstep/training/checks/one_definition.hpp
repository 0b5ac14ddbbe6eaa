/// \file
/// Detects two networks of one name: a type with external linkage that two source files define
/// differently. C++ leaves such a program undefined, and linkers keep one of the two definitions
/// for both files. Invariant: networks in unnamed namespaces never meet.
///
///     a.cpp   struct Net : Sequential<...>   in_this_unit<Net> ──┐ key_of_network<Net>:
///     b.cpp   struct Net : Sequential<...>   in_this_unit<Net> ──┘ one address after linking
///
/// Each unit registers its own hash of the layers when the program starts: the hash is a constant,
/// so that it is computed in that unit whatever the linker keeps.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/core/config.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/core/type_list.hpp"
#include "lockstep/model/graph.hpp"

namespace lockstep::detail {

/// A network as one source file defines it, in a list of all of them.
class NetworkDefinition {
 public:
  LOCKSTEP_COLD_DECL NetworkDefinition(const void* key, std::uint64_t layers);
  NetworkDefinition(const NetworkDefinition&) = delete;
  NetworkDefinition& operator=(const NetworkDefinition&) = delete;
  LOCKSTEP_COLD_DECL ~NetworkDefinition();

  /// \throws UsageError if another definition has the same key and other layers.
  LOCKSTEP_COLD_DECL void check(std::string_view name) const;

 private:
  const void* key_;
  std::uint64_t layers_;
  NetworkDefinition* next_;
};

/// A hash of the layers: names, activations, inputs, shapes, parameters and FLOPs.
template <class Net>
constexpr std::uint64_t hash_of_layers() {
  std::uint64_t hash = mix(Net::graph.weights, Net::graph.state);
  const auto add_shape = [&](const Shape& shape) {
    hash = mix(hash, static_cast<std::uint64_t>(shape.rank));
    for (int i = 0; i < shape.rank; ++i) hash = mix(hash, static_cast<std::uint64_t>(shape[i]));
  };
  add_shape(Net::input_shape);
  for (int i = 0; i < Net::graph.nodes; ++i) {
    const Node& n = Net::graph.node[static_cast<std::size_t>(i)];
    hash = mix(mix(hash, hash_name(n.name)), hash_name(n.class_name));
    if (!n.block.empty()) hash = mix(hash, hash_name(n.block));
    hash = mix(mix(hash, n.w_count), static_cast<std::uint64_t>(n.flops));
    for (const ValueId v : n.operands_of(Net::graph.operand))
      hash = mix(hash, static_cast<std::uint64_t>(v));
    if (n.first >= 0) hash = mix(hash, static_cast<std::uint64_t>(n.first));
    if (n.is_frozen) hash = mix(hash, ~std::uint64_t{0});
    if (n.in_blocks) hash = mix(hash, Net::graph.block_rows + 1);
    add_shape(Net::graph.value[n.out]);
  }
  return hash;
}

template <class Net>
inline char key_of_network = 0;

namespace {
/// Internal linkage: each source file that makes a model of Net has its own.
template <class Net>
[[gnu::used]] const NetworkDefinition in_this_unit{&key_of_network<Net>, [] {
                                                     constexpr std::uint64_t layers =
                                                         hash_of_layers<Net>();
                                                     return layers;
                                                   }()};
}  // namespace

/// \throws UsageError if source files of the program define networks of this name differently.
template <class Net>
[[gnu::cold]] void check_one_definition() {
  in_this_unit<Net>.check(class_name<Net>());
}

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checks/one_definition.ipp"
#endif
