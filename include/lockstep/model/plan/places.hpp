/// \file
/// The last pass of a plan: operand addresses of each step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/model/plan/lifetimes.hpp"

namespace lockstep::detail {

/// Arena offsets of the operands of a step, in bytes per example.
struct Places {
  std::size_t x = 0, x2 = 0, y = 0, saved = 0;
};

/// A step with the arena offsets of all its operands, in bytes per example unless noted otherwise.
/// \code
///   arena of a batch of n   [n * dy ....][n * forward.x ....][n * forward.y ....]
///   arena of a step         [once of the last step][..][once of the first step]
/// \endcode
struct PlacedStep : PlanStep {
  Places forward, backward;  ///< differ only in Recompute; recomputed forward uses `backward`
  bool is_recomputed = false;
  StepId segment_begin = StepId::none;  ///< for the last step of a Recompute block: the first one
  std::size_t dy = 0;
  std::size_t dx = 0, dx2 = 0;  ///< where the kernel writes the gradients
  std::size_t dx_sum = 0,
              dx2_sum = 0;  ///< where they are accumulated; differs from dx if the value has
                            ///< another reader
  std::size_t once = 0;     ///< bytes into the per-step arena
  std::size_t x_size = 0, x2_size = 0;             ///< elements per example
  bool reads_input = false, reads_input2 = false;  ///< whether x, x2 is the batch
  bool wants_dx = false, wants_dx2 = false;        ///< whether a weight that trains precedes x, x2
  bool has_statistics = false;  ///< state that training changes and inference reads
  bool is_held = false;         ///< frozen at run time, with its weights where they are
  bool adds_dx = false, adds_dx2 = false;
  bool adds_dw = false;      ///< whether backward of another step has written gradients of w
  bool completes_dw = true;  ///< whether no later backward adds to them
  /// Requirements of the kernel. Operands that it did not request are null in its calls.
  bool keeps_x = false, keeps_x2 = false, keeps_y = false, saves = false, saves_once = false;
  std::uint64_t key = 0;  ///< hash of the layer's name

  constexpr bool wants_dw() const { return trains() && !is_held; }
  /// Whether y has a gradient.
  constexpr bool runs_backward() const { return wants_dw() || wants_dx || wants_dx2; }
  /// Whether the kernel runs as in inference, without updating or exchanging its statistics.
  constexpr bool infers() const { return has_statistics && (is_frozen || is_held); }
};

/// Sizes of the arenas.
struct ArenaSize {
  std::size_t arena = 0;           ///< bytes per example
  std::size_t arena_unshared = 0;  ///< bytes per example without reuse
  std::size_t once = 0;            ///< bytes per step
};

/// Copies the requirements of the step's kernel and derives flags from its inputs and name.
constexpr void declare_step(PlacedStep& s, const KernelNeeds& k) {
  s.keeps_x = k.keeps_x;
  s.keeps_x2 = k.keeps_x2;
  s.keeps_y = k.keeps_y;
  s.saves = k.saved > 0;
  s.saves_once = k.once > 0;
  s.has_statistics = k.updates_state;
  s.reads_input = s.in0 == ValueId::batch;
  s.reads_input2 = s.in1 == ValueId::batch;
  s.key = mix(hash_name(s.name), static_cast<std::uint64_t>(s.ordinal));
  if (!s.block.empty()) s.key = mix(hash_name(s.block), s.key);
  if (s.call > 0) s.key = mix(s.key, static_cast<std::uint64_t>(s.call));
}

/// Sets the offsets of step i from the packed arena.
template <std::size_t Size, bool R>
constexpr void place_step(PlacedStep& s, StepId i, Lifetimes<Size, R>& l) {
  s.forward = {l.activation(s.in0).offset, 0, l.activation(s.out).offset,
               l.saved_forward(i).offset};
  s.backward = {l.recomputed(s.in0, i).offset, 0, l.recomputed(s.out, i).offset, l.saved(i).offset};
  s.dy = l.gradient(s.out).offset;
  s.wants_dx = l.needs.has_gradient[s.in0];
  s.adds_dx = l.adds_dx[i];
  s.dx_sum = l.gradient(s.in0).offset;
  s.dx = s.adds_dx ? l.temporary(i).offset : s.dx_sum;
  if (!exists(s.in1)) return;
  s.forward.x2 = l.activation(s.in1).offset;
  s.backward.x2 = l.recomputed(s.in1, i).offset;
  s.wants_dx2 = l.needs.has_gradient[s.in1];
  s.adds_dx2 = l.adds_dx2[i];
  s.dx2_sum = l.gradient(s.in1).offset;
  s.dx2 = s.adds_dx2 ? l.temporary2(i).offset : s.dx2_sum;
}

/// Packs the arenas and sets the offsets of each step. \returns the sizes of the arenas.
template <std::size_t Size, bool R>
constexpr ArenaSize place_all(Table<StepId, PlacedStep, Size>& step, Lifetimes<Size, R>& l) {
  ArenaSize result;
  result.arena = pack(l.buffer, l.times.end);
  for (const ArenaBuffer& b : l.buffer)
    if (b.used()) result.arena_unshared += b.size;
  for (StepId i = before(l.steps.end); exists(i); --i) {
    PlacedStep& s = step[i];
    declare_step(s, l.needs.kernel[i]);
    place_step(s, i, l);
    s.is_recomputed = l.times.is_recomputed[i];
    s.segment_begin = l.times.segment_begin[i];
    s.once = result.once;
    result.once += round_up(l.needs.kernel[i].once);
  }
  return result;
}

}  // namespace lockstep::detail
