/// \file
/// Plan pass: the last layer in blocks of rows. Invariant: its operand and the gradient of that are live
/// from its forward to its backward, since each block runs both.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/model/plan/lifetimes.hpp"

namespace lockstep::detail {

/// The blocks of a network that ends in InBlocks, in the per-step arena. `logits` and `slopes` are of
/// the kernels' element type; the loss has `output` and `gradient` in that of the weights, which are
/// the same memory if the types are equal. All zero for other networks.
/// \code
///   examples * rows_per_example = 5 rows, of blocks of 2
///   rows     [ 0  1 ][ 2  3 ][ 4 ]
///   arena    ... [logits: rows * width][slopes][output][gradient]
/// \endcode
struct OutputBlocks {
  std::size_t rows = 0;  ///< of a block; 0: the output is stored as a whole
  std::size_t rows_per_example = 0;
  std::size_t width = 0;                    ///< elements of a row of the output
  std::size_t logits = 0, slopes = 0;       ///< bytes into the per-step arena
  std::size_t output = 0, gradient = 0;     ///< the same
  std::size_t block_bytes = 0, offset = 0;  ///< of all of them
  bool unsafe = false;  ///< the kernel keeps other data than its operand and its result

  constexpr bool any() const { return rows > 0; }
  /// Rows of all blocks.
  constexpr std::size_t all(std::size_t examples) const { return examples * rows_per_example; }
  /// Rows of the first block, and of a last one that is smaller; 0: there is no such.
  constexpr std::size_t first(std::size_t examples) const { return std::min(rows, all(examples)); }
  constexpr std::size_t rest(std::size_t examples) const {
    return all(examples) > rows ? all(examples) % rows : 0;
  }
};

/// Rows of a block with outputs of `width` elements, if the network leaves this to the plan.
constexpr std::size_t rows_of_block(std::size_t width, std::size_t element) {
  constexpr std::size_t bytes = 32 << 20, step = 16;
  return std::max(bytes / (width * element) / step, std::size_t{1}) * step;
}

/// The blocks of an output of shape `out`, placed from byte `offset` of the per-step arena on.
/// `activation`, `real`: bytes of an element of activations and of weights.
constexpr OutputBlocks output_blocks(const Shape& out, std::size_t rows, std::size_t offset,
                                     std::size_t activation, std::size_t real,
                                     const KernelNeeds& kernel) {
  OutputBlocks b;
  b.width = static_cast<std::size_t>(out.channels());
  b.rows_per_example = out.size() / b.width;
  b.rows = rows > 0 ? rows : rows_of_block(b.width, activation);
  std::size_t end = b.offset = offset;
  const auto place = [&](std::size_t element) {
    const std::size_t at = end;
    end += round_up(b.rows * b.width * element);
    return at;
  };
  b.output = b.logits = place(activation);
  b.gradient = b.slopes = place(activation);
  if (activation != real) {
    b.output = place(real);
    b.gradient = place(real);
  }
  b.block_bytes = end - offset;
  b.unsafe = kernel.saved > 0 || kernel.once > 0 || kernel.exchanges || kernel.updates_state ||
             kernel.in_place;
  return b;
}

/// Extends the lives of the operand of the last step, which runs in blocks, and of its gradient.
template <std::size_t Size, std::size_t Operands, bool R>
constexpr void hold_for_blocks(Lifetimes<Size, Operands, R>& l,
                               const Table<ValueId, std::size_t, Size>& bytes) {
  const StepId last = before(l.steps.end);
  const PlanStep& s = l.steps.step[last];
  const int forward = static_cast<int>(last), back = l.times.back[last];
  for (std::size_t k = s.operands_begin; k < s.operands_end; ++k) {
    const ValueId v = l.steps.operand[k];
    if (is_computed(v)) l.activation(v).needed_at(back, bytes[v]);
    if (l.needs.operand[k].wants_dx) l.gradient(v).needed_at(forward, bytes[v]);
  }
}

}  // namespace lockstep::detail
