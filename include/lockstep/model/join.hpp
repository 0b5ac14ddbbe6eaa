/// \file
/// Layers with several operands, such as the rules that merge values, for Parallel and Graph.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "lockstep/model/graph.hpp"

namespace lockstep::detail {

/// Whether a class is a layer with some number of operands, at least two.
template <class L>
inline constexpr bool is_join = LayerOf<L, 2> || LayerOf<L, 3> || LayerOf<L, 4>;

/// The op types of a layer with `Count` operands.
template <class L, std::size_t Count>
struct OpsOfJoin {
  using type = List<>;
};
template <class L, std::size_t Count>
  requires LayerOf<L, Count>
struct OpsOfJoin<L, Count> {
  using type = OpsWith<L, Count>;
};

/// Applies a layer to several values.
template <class L, class Walk, std::size_t Count>
constexpr ValueId join_all(Walk& walk, const std::array<ValueId, Count>& value,
                           Failure::Kind fault) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return walk.template add_layer<L>(fault, value[I]...);
  }(std::make_index_sequence<Count>{});
}

}  // namespace lockstep::detail
