/// \file
/// The last pass of a plan: operand addresses of each step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/model/plan/lifetimes.hpp"

namespace lockstep::detail {

/// An operand of a step with its arena offsets, in bytes per example.
struct PlacedOperand {
  ValueId value{};
  std::size_t forward = 0, backward = 0;  ///< differ only in Recompute; recomputed forward uses
                                          ///< `backward`
  std::size_t dx = 0;                     ///< where the kernel writes the gradient
  std::size_t dx_sum = 0;  ///< where it is accumulated; differs from dx if the value has another
                           ///< reader
  bool is_batch = false;
  bool keeps = false;     ///< backward reads it
  bool wants_dx = false;  ///< whether a weight that trains precedes it
  bool adds_dx = false;
};

/// Arena offsets of the result of a step and of what its kernel saves, in bytes per example.
struct Places {
  std::size_t y = 0, saved = 0;
};

/// A step with its arena offsets, in bytes per example unless noted otherwise. Its operands are a
/// range of the plan's.
/// \code
///   arena of a batch of n   [n * dy ....][n * forward of x[0] ....][n * forward.y ....]
///   arena of a step         [once of the last step][..][once of the first step]
/// \endcode
struct PlacedStep : PlanStep {
  Places forward, backward;  ///< differ only in Recompute; recomputed forward uses `backward`
  bool is_recomputed = false;
  StepId segment_begin = StepId::none;  ///< for the last step of a Recompute block: the first one
  std::size_t dy = 0;
  std::size_t once = 0;         ///< bytes into the per-step arena
  bool wants_dx = false;        ///< of one of its operands
  bool has_statistics = false;  ///< state that training changes and inference reads
  bool is_held = false;         ///< frozen at run time, with its weights where they are
  bool adds_dw = false;         ///< whether backward of another step has written gradients of w
  bool completes_dw = true;     ///< whether no later backward adds to them
  /// Requirements of the kernel. Pointers that it did not request are null in its calls.
  bool keeps_y = false, saves = false, saves_once = false;
  std::uint64_t key = 0;  ///< hash of the layer's name

  constexpr bool wants_dw() const { return trains() && !is_held; }
  /// Whether y has a gradient.
  constexpr bool runs_backward() const { return wants_dw() || wants_dx; }
  /// Whether the kernel runs as in inference, without updating or exchanging its statistics.
  constexpr bool infers() const { return has_statistics && (is_frozen || is_held); }
};

/// Sizes of the arenas.
struct ArenaSize {
  std::size_t arena = 0;           ///< bytes per example
  std::size_t arena_unshared = 0;  ///< bytes per example without reuse
  std::size_t once = 0;            ///< bytes per step
};

/// Copies the requirements of the step's kernel and derives the key from its name.
constexpr void declare_step(PlacedStep& s, const KernelNeeds& k) {
  s.keeps_y = k.keeps_y;
  s.saves = k.saved > 0;
  s.saves_once = k.once > 0;
  s.has_statistics = k.updates_state;
  s.key = mix(hash_name(s.name), static_cast<std::uint64_t>(s.ordinal));
  if (!s.block.empty()) s.key = mix(hash_name(s.block), s.key);
  if (s.call > 0) s.key = mix(s.key, static_cast<std::uint64_t>(s.call));
}

/// Sets the offsets of step i from the packed arena.
template <std::size_t Size, std::size_t Operands, bool R>
constexpr void place_step(PlacedStep& s, std::array<PlacedOperand, Operands>& operand, StepId i,
                          Lifetimes<Size, Operands, R>& l) {
  s.forward = {l.activation(s.out).offset, l.saved_forward(i).offset};
  s.backward = {l.recomputed(s.out, i).offset, l.saved(i).offset};
  s.dy = l.gradient(s.out).offset;
  for (std::size_t k = s.operands_begin; k < s.operands_end; ++k) {
    PlacedOperand& o = operand[k];
    o.value = l.steps.operand[k];
    o.is_batch = o.value == ValueId::batch;
    o.keeps = l.needs.operand[k].keeps;
    o.wants_dx = l.needs.operand[k].wants_dx;
    o.adds_dx = l.adds_dx[k];
    o.forward = l.activation(o.value).offset;
    o.backward = l.recomputed(o.value, i).offset;
    o.dx_sum = l.gradient(o.value).offset;
    o.dx = o.adds_dx ? l.temporary(k).offset : o.dx_sum;
    s.wants_dx = s.wants_dx || o.wants_dx;
  }
}

/// Packs the arenas and sets the offsets of each step. \returns the sizes of the arenas.
template <std::size_t Size, std::size_t Operands, bool R>
constexpr ArenaSize place_all(Table<StepId, PlacedStep, Size>& step,
                              std::array<PlacedOperand, Operands>& operand,
                              Lifetimes<Size, Operands, R>& l) {
  ArenaSize result;
  result.arena = pack(l.buffer, l.times.end);
  for (const ArenaBuffer& b : l.buffer)
    if (b.used()) result.arena_unshared += b.size;
  for (StepId i = before(l.steps.end); exists(i); --i) {
    PlacedStep& s = step[i];
    declare_step(s, l.needs.kernel[i]);
    place_step(s, operand, i, l);
    s.is_recomputed = l.times.is_recomputed[i];
    s.segment_begin = l.times.segment_begin[i];
    s.once = result.once;
    result.once += round_up(l.needs.kernel[i].once);
  }
  return result;
}

}  // namespace lockstep::detail
