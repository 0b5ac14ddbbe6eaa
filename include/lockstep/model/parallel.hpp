/// \file
/// Parallel branches that read the same input, merged by a rule.
#pragma once

#include <array>
#include <initializer_list>

#include "lockstep/layers/merging/add.hpp"
#include "lockstep/layers/merging/concatenate.hpp"
#include "lockstep/model/join.hpp"
#include "lockstep/model/sequential.hpp"

namespace lockstep {

namespace detail {
template <bool IsRule, std::size_t Branches, bool Merges>
struct CheckParallel {
  static_assert(IsRule,
                "lockstep::Parallel: the first argument is not a rule that merges branches; "
                "write Parallel<ls::Add, ...> or Parallel<ls::Concatenate, ...>");
  static_assert(!IsRule || Branches >= 2,
                "lockstep::Parallel: there must be at least two branches; write "
                "Parallel<ls::Concatenate, Branch, Branch>");
  static_assert(!IsRule || Branches < 2 || Merges,
                "lockstep::Parallel: there are more branches than the rule merges; Subtract merges "
                "two, write Parallel<ls::Subtract, A, Parallel<ls::Add, B, C>>");
};
}  // namespace detail

/// y = Rule(Branch(x), Branch(x), ...): with Add their sum, with Concatenate their concatenation
/// along the last axis, in order. A branch is a layer or a block; Identity is x.
/// \code
///   struct Inception : ls::Sequential<ls::Parallel<ls::Concatenate, ls::Conv2D<64, 1, ls::relu>,
///   Wide<96, 128, 3>, Wide<16, 32, 5>, Pooled<32>>> {};
/// \endcode
/// Concatenate requires branches that differ only on its axis, Dot two branches with equal extents on
/// its axes, the other rules (Add, Average, Maximum, Minimum, Multiply, Subtract) branches of equal
/// shape. Subtract and Dot merge two branches, the others any number, in one node, from left to right.
template <class Rule, class... Branches>
struct Parallel {
  using is_composite = void;
  using children = List<Branches..., Rule>;
  using ops = detail::Union<typename detail::OpsOf<Branches>::type...,
                            typename detail::OpsOfJoin<Rule, sizeof...(Branches)>::type>;
  static constexpr bool layers_ok = [] {
    bool all = sizeof...(Branches) >= 2 && LayerOf<Rule, sizeof...(Branches)>;
    for (const bool ok : std::initializer_list<bool>{true, detail::layer_ok<Branches>()...})
      all = all && ok;
    return all;
  }();
  template <class Walk>
  static constexpr detail::ValueId append(Walk& walk, detail::ValueId v) {
    const std::array<detail::ValueId, sizeof...(Branches)> out{walk.template add<Branches>(v)...};
    return detail::join_all<Rule>(walk, out, detail::Failure::branches_do_not_join);
  }

  static_assert(sizeof(detail::CheckParallel<detail::is_join<Rule>, sizeof...(Branches),
                                             LayerOf<Rule, sizeof...(Branches)>>) > 0);
  static_assert(
      std::initializer_list<std::size_t>{1, sizeof(detail::CheckLayer<Branches>)...}.size() > 0);
};

}  // namespace lockstep
