/// \file
/// The masks of padded steps that belong to a network's outputs, read on the host: which positions
/// count in the loss. Invariant: they depend on the inputs alone, so a step knows before its forward
/// pass how many positions of the whole job count.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "lockstep/concepts/loaded_batch.hpp"
#include "lockstep/core/type_list.hpp"
#include "lockstep/layers/mask.hpp"
#include "lockstep/layers/merging/concatenate.hpp"
#include "lockstep/layers/reshaping/flatten.hpp"
#include "lockstep/layers/reshaping/row_slice.hpp"
#include "lockstep/model/graph.hpp"

namespace lockstep::detail {

/// The weights of an output with a mask, among those of an example.
struct MaskedWeights {
  ValueId mask{};
  std::size_t first = 0, count = 0, per_step = 1;
};

/// The masks of Net's outputs, each on its range of an example's weights, `Layout::weight_shape`.
template <class Net, class Layout>
class OutputMasks {
  static constexpr auto& graph = Net::graph;
  using Ops = typename std::remove_cvref_t<decltype(graph)>::ops;
  static constexpr int mask_type = index_in<MaskOp>(Ops{}),
                       join_type = index_in<ConcatenateOp>(Ops{}),
                       part_type = index_in<RowSliceOp>(Ops{}), view_type = index_in<ViewOp>(Ops{});
  using Masked = MaskedWeights;
  static constexpr auto outputs = [] {
    std::array<Masked, Layout::outputs> all{};
    if constexpr (mask_type >= 0)
      for (std::size_t o = 0; o < all.size(); ++o) {
        const ValueId value = all.size() > 1 ? graph.parts[o] : graph.output;
        const auto weights = Layout::weights_of(o);
        const ValueId mask = graph.mask_of[value];
        const auto steps = static_cast<std::size_t>(graph.value[mask][0]);
        const bool has_steps = graph.value[value].rank > 1;  // unlike a row of several results
        if (is_computed(mask) && has_steps && weights.count % steps == 0)
          all[o] = {mask, weights.first, weights.count, weights.count / steps};
      }
    return all;
  }();

 public:
  /// Whether an output has a mask.
  static constexpr bool exist = [] {
    for (const Masked& o : outputs)
      if (is_computed(o.mask)) return true;
    return false;
  }();

  /// Whether no mask depends on a layer that computes.
  static constexpr bool are_of_inputs() {
    if constexpr (exist)
      for (const Masked& o : outputs)
        if (!is_of_inputs(o.mask)) return false;
    return true;
  }

  /// Whether weight w of an example counts; x: its inputs.
  template <class T>
  static bool counts(const T* x, std::size_t w) {
    for (const Masked& o : outputs)
      if (is_computed(o.mask) && w >= o.first && w < o.first + o.count)
        return counts_step(o.mask, x, (w - o.first) / o.per_step);
    return true;
  }

  /// Writes the mask of a batch's examples, (examples, weights), times `weight` unless null.
  template <class T>
  static void write(const LoadedBatch& batch, const T* weight, std::vector<T>& out) {
    const std::size_t width = Layout::weight_shape.size(), size = batch.slice.count * width;
    const T* const x = batch.rows<T>(0);
    out.resize(std::max(out.size(), size));
    for (std::size_t i = 0; i < size; ++i)
      out[i] = !counts(x + i / width * Net::input_shape.size(), i % width) ? T(0)
               : weight == nullptr                                         ? T(1)
                                                                           : weight[i];
  }

 private:
  static constexpr const Node& node_of(ValueId v) {
    return graph.node[static_cast<std::size_t>(v) - 1];
  }
  static constexpr std::span<const ValueId> operands_of(ValueId v) {
    return node_of(v).operands_of(graph.operand);
  }
  static constexpr const MaskOp& op_of(ValueId mask) {
    return graph.pool.template of<MaskOp>().op[node_of(mask).op];
  }
  /// Where a value begins in the row of the inputs; empty if a layer has computed it.
  static constexpr std::optional<std::size_t> place_of(ValueId v) {
    if (!is_computed(v)) return 0;
    const Node& n = node_of(v);
    const ValueId from = operands_of(v)[0];
    if (n.type == view_type) return place_of(from);
    if constexpr (part_type >= 0)
      if (n.type == part_type && !is_computed(from))
        return static_cast<std::size_t>(graph.pool.template of<RowSliceOp>().op[n.op].offset);
    return {};
  }
  /// The mask of a value without one, in which all steps count.
  static constexpr bool is_full(const MaskOp& op) {
    return !op.merges && op.value == std::numeric_limits<float>::max();
  }
  static constexpr bool is_of_inputs(ValueId mask) {
    if (!is_computed(mask)) return true;
    if (node_of(mask).type == mask_type) {
      const MaskOp& op = op_of(mask);
      if (!op.merges) return is_full(op) || place_of(operands_of(mask)[0]).has_value();
    }
    for (const ValueId m : operands_of(mask))
      if (!is_of_inputs(m)) return false;
    return true;
  }
  template <class T>
  static bool counts_step(ValueId mask, const T* x, std::size_t s) {
    const std::span<const ValueId> from = operands_of(mask);
    if (join_type >= 0 && node_of(mask).type == join_type) {
      std::size_t i = 0;
      for (; s >= graph.value[from[i]].size(); ++i) s -= graph.value[from[i]].size();
      return counts_step(from[i], x, s);
    }
    const MaskOp& op = op_of(mask);
    if (op.merges) {
      const bool first = counts_step(from[0], x, s);
      return first != op.both ? first : counts_step(from[1], x, s);
    }
    if (is_full(op)) return true;
    const T* const step = x + *place_of(from[0]) + s * op.width();
    return std::any_of(step, step + op.width(), [&](T v) { return v != T(op.value); });
  }
};

}  // namespace lockstep::detail
