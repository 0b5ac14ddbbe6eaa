/// \file
/// The kernels of a plan as one constant table.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "lockstep/core/type_list.hpp"
#include "lockstep/layers/reshaping/flatten.hpp"

namespace lockstep::detail {

/// One entry for each distinct op of the plan, in the order of its types, made by
/// `Entry::of<Op, plan, I>()`.
template <class Plan, class Entry>
struct KernelTable {
  using ops = typename Plan::ops;
  static constexpr auto& plan = Plan::plan;

  template <class... Ops>
  static constexpr std::size_t count(List<Ops...>) {
    return (std::size_t{0} + ... + static_cast<std::size_t>(plan.pool.template of<Ops>().count));
  }
  std::array<std::size_t, ops::size + 1> base{};
  std::array<Entry, count(ops{}) + 1> entry{};

  static constexpr KernelTable make() {
    KernelTable t;
    std::size_t next = 0, type = 0;
    const auto add = [&]<class TheOp, std::size_t... I>(std::index_sequence<I...>) {
      t.base[type++] = next;
      if constexpr (!std::is_same_v<TheOp, ViewOp>)
        ((t.entry[next++] = Entry::template of<TheOp, plan, I>()), ...);
    };
    const auto add_all = [&]<class... Ops>(List<Ops...>) {
      (add.template operator()<Ops>(std::make_index_sequence<static_cast<std::size_t>(
                                        plan.pool.template of<Ops>().count)>{}),
       ...);
    };
    add_all(ops{});
    return t;
  }
};

template <class Plan, class Entry>
inline constexpr KernelTable<Plan, Entry> kernel_table = KernelTable<Plan, Entry>::make();

}  // namespace lockstep::detail
