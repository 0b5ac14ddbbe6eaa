/// \file
/// The weights that a batch touches: of a table that an Embedding reads by the network's input, the rows
/// of the batch's integers, and all other weights.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/concepts/layer.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/model/graph.hpp"

namespace lockstep::detail {

/// A table among the flat weights: `rows` rows of `width` elements from `first` on.
struct RowTable {
  std::size_t first = 0, rows = 0, width = 0;
};

template <std::size_t N>
struct RowTables {
  std::array<RowTable, N> table{};
  std::size_t count = 0;
  constexpr std::span<const RowTable> all() const { return {table.data(), count}; }
};

/// Whether a node reads the network's input, as a whole or its part of the row.
template <class Net>
constexpr bool reads_network_input(const Node& n) {
  for (const ValueId v : n.operands_of(Net::graph.operand))
    if (v == ValueId::batch) return true;
  return n.reads_row;
}

/// The tables of a network whose rows are chosen by the network's input, in ascending order. One with a
/// penalty is left out, since that touches all rows, and so is one with several calls or that another
/// layer uses (TiedDense).
template <class Net>
constexpr auto row_tables() {
  RowTables<static_cast<std::size_t>(Net::graph.nodes) + 1> found;
  for (int i = 0; i < Net::graph.nodes; ++i) {
    const Node& node = Net::graph.node[static_cast<std::size_t>(i)];
    if (node.class_name != "Embedding" || !reads_network_input<Net>(node) ||
        has_several_calls(node))
      continue;
    for (int k = 0; k < Net::graph.parameters; ++k) {
      const NamedParameter& p = Net::graph.parameter[static_cast<std::size_t>(k)];
      if (p.trainable && is_of(p, node) && !p.penalty)
        found.table[found.count++] = {p.offset, static_cast<std::size_t>(p.shape[0]),
                                      static_cast<std::size_t>(p.shape[1])};
    }
  }
  return found;
}

/// Fills `touched` with the slices of [0, weights) that a batch touches, ascending and as long as
/// possible. `rows`: the batch's integers; overwritten. Integers that no table has are left out: the
/// layer refuses them.
LOCKSTEP_COLD_DECL void touched_weights(std::span<const RowTable> tables, std::size_t weights,
                                        std::vector<std::size_t>& rows,
                                        std::vector<Slice>& touched);

/// The parts of `touched` within `ranges`; an empty part if there are none. Both are ascending.
LOCKSTEP_COLD_DECL void touched_within(std::span<const Slice> touched,
                                       std::span<const Slice> ranges, std::vector<Slice>& parts);

/// The rows of a batch in a process that has no others: they lie one after the other from the beginning
/// of their table, and the batch's integers are exchanged for their numbers there.
///
///     table      | 0 | 1 | 2 | 3 | 4 | 5 | 6 | ...     rows 1, 4 and 5 are those of the batch
///     process    | 1 | 4 | 5 |                          the batch 4 5 5 1 becomes 1 2 2 0
struct PlacedRows {
  std::vector<std::size_t> rows{};  ///< ascending
  /// Slices of all weights, as long as possible in both: where they are in the model, and here.
  std::vector<Slice> touched{}, places{};
  std::vector<Slice> used{};  ///< the places, joined

  /// Those of the batch's integers `rows`, in bytes of elements of `size` bytes; `used` is in elements.
  /// Without `others` the weights outside of tables are left out.
  LOCKSTEP_COLD_DECL void place(std::span<const RowTable> tables, std::size_t weights,
                                std::size_t size, bool others);
};

/// The parts of `touched` within `ranges`, and their `places`; an empty part if there are none.
LOCKSTEP_COLD_DECL void touched_within(const PlacedRows& rows, std::span<const Slice> ranges,
                                       std::vector<Slice>& parts, std::vector<Slice>& places);

/// Collects the integers of a batch's input that can be rows of tables. Others are the layer's to refuse.
template <class T>
void collect_rows(std::span<const T> x, std::vector<std::size_t>& rows) {
  rows.clear();
  for (const T v : x)
    if (v >= 0 && v < T(1 << 30)) rows.push_back(static_cast<std::size_t>(v));
}
/// The same input with the rows' places. Numbers that are no rows stay as they are.
template <class T>
void renumber(std::span<const T> x, std::span<const std::size_t> rows, std::vector<T>& to) {
  to.assign(x.begin(), x.end());
  for (T& v : to) {
    if (!(v >= 0 && v < T(1 << 30))) continue;
    const auto row = static_cast<std::size_t>(v);
    const auto found = std::lower_bound(rows.begin(), rows.end(), row);
    if (found != rows.end() && *found == row && static_cast<T>(row) == v)
      v = static_cast<T>(found - rows.begin());
  }
}

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/asynchronous/touched_rows.ipp"
#endif
