/// \file
/// Values merged by a rule, for Parallel and Graph.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>

#include "lockstep/model/graph.hpp"

namespace lockstep::detail {

/// The largest number of values that a rule merges.
template <class Rule>
inline constexpr int most_branches = std::numeric_limits<int>::max();
template <class Rule>
  requires requires { Rule::most_branches; }
inline constexpr int most_branches<Rule> = Rule::most_branches;

/// The rule of all joins but the last one.
template <class Rule>
struct PartialOf {
  using type = Rule;
};
template <class Rule>
  requires requires { typename Rule::partial; }
struct PartialOf<Rule> {
  using type = typename Rule::partial;
};

/// The op types of a layer with `Count` operands, or of a rule that merges them in pairs.
template <class L, std::size_t Count>
struct OpsOfJoin {
  using type = List<>;
};
template <class L, std::size_t Count>
  requires LayerOf<L, Count>
struct OpsOfJoin<L, Count> {
  using type = OpsWith<L, Count>;
};
template <JoinRule Rule, std::size_t Count>
  requires(!LayerOf<Rule, Count>)
struct OpsOfJoin<Rule, Count> {
  using type = List<decltype(Rule::op(Shape{}, Shape{})),
                    decltype(PartialOf<Rule>::type::op(Shape{}, Shape{}))>;
};
/// The layers of a join, for LeavesOf.
template <class L, std::size_t Count>
using LeafOfJoin = std::conditional_t<LayerOf<L, Count>, List<L>, List<>>;

/// Applies a layer to several values, or merges them by a balanced tree over neighbours: a chain
/// would copy the first ones once per node.
template <class Rule, class Walk, std::size_t Count>
constexpr ValueId join_all(Walk& walk, std::array<ValueId, Count> value, Failure::Kind fault) {
  if constexpr (LayerOf<Rule, Count>) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return walk.template add_layer<Rule>(fault, value[I]...);
    }(std::make_index_sequence<Count>{});
  } else {
    for (std::size_t n = Count; n > 2; n = (n + 1) / 2) {
      for (std::size_t i = 0; i < n / 2; ++i)
        value[i] = walk.template join<typename PartialOf<Rule>::type>(value[2 * i],
                                                                      value[2 * i + 1], fault);
      if (n % 2 == 1) value[n / 2] = value[n - 1];
    }
    return walk.template join<Rule>(value[0], value[1], fault, static_cast<int>(Count));
  }
}

}  // namespace lockstep::detail
