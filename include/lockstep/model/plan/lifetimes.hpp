/// \file
/// Plan pass: lifetime of each buffer. Invariant: a buffer is live at all times at which a kernel
/// may read or write it.
#pragma once

#include <array>
#include <cstddef>

#include "lockstep/model/arena.hpp"
#include "lockstep/model/plan/sharing.hpp"
#include "lockstep/model/plan/timetable.hpp"

namespace lockstep::detail {

/// The buffers of a model with two steps, the second of which keeps x. A value has two buffers, one
/// per forward run, only where a step is recomputed.
/// \code
///   time                  0: conv2d   1: dense   2: loss   3: back dense   4: back conv2d
///   activation(1)         [.................................]
///   activation(2)                     [..........]
///   gradient(2)                                  [..........]
///   gradient(1)                                             [................]
/// \endcode
template <std::size_t Size, std::size_t Operands, bool Recomputes>
struct Lifetimes {
  const StepList<Size, Operands>& steps;
  const Needs<Size, Operands>& needs;
  const Timetable<Size>& times;
  const Sharing<Size>& sharing;
  /// Activations, saved data and gradients, `Size` of each; temporaries; then activations and saved
  /// data that are recomputed.
  std::array<ArenaBuffer, (Recomputes ? 5 : 3) * Size + Operands>
      buffer;                            // no {}: g++ 12 would then zero all members, despite their
                                         // initializers
  std::array<bool, Operands> adds_dx{};  ///< whether the value already has a gradient

  constexpr Lifetimes(const StepList<Size, Operands>& s, const Needs<Size, Operands>& n,
                      const Timetable<Size>& t, const Sharing<Size>& sh)
      : steps(s), needs(n), times(t), sharing(sh) {}

  constexpr ArenaBuffer& activation(ValueId v) { return of(0, sharing.memory[v]); }
  constexpr ArenaBuffer& saved(StepId i) { return of(Size, i); }
  constexpr ArenaBuffer& gradient(ValueId v) {
    return sharing.gradient_overwrites_value[v] ? activation(v) : of(2 * Size, sharing.memory[v]);
  }
  /// Where a kernel writes the gradient of operand k of all, if it is added to an existing one.
  constexpr ArenaBuffer& temporary(std::size_t k) { return of(3 * Size, k); }
  /// The buffer of v that recomputation and backward of step i use.
  constexpr ArenaBuffer& recomputed(ValueId v, StepId i) {
    if constexpr (Recomputes) {
      const StepId by = needs.producer[v];
      if (exists(by) && times.is_recomputed[by] && steps.step[by].segment == steps.step[i].segment)
        return of(3 * Size + Operands, sharing.memory[v]);
    }
    return activation(v);
  }
  constexpr ArenaBuffer& saved_forward(StepId i) {
    if constexpr (Recomputes)
      if (times.is_recomputed[i]) return of(4 * Size + Operands, i);
    return saved(i);
  }

 private:
  constexpr ArenaBuffer& of(std::size_t first, auto id) {
    return buffer[first + static_cast<std::size_t>(id)];
  }
};

/// Marks the values of step i, and the data that its kernel saves, as needed.
template <std::size_t Size, std::size_t Operands, bool R>
constexpr void add_values(Lifetimes<Size, Operands, R>& l, StepId i,
                          const Table<ValueId, std::size_t, Size>& bytes) {
  const PlanStep& s = l.steps.step[i];
  const KernelNeeds& k = l.needs.kernel[i];
  const int forward = static_cast<int>(i), back = l.times.back[i],
            recompute_time = l.times.recompute_time[i];
  const bool is_recomputed = l.times.is_recomputed[i];
  const auto add = [&](ValueId v, bool keeps) {
    if (!is_computed(v)) return;
    l.activation(v).needed_at(forward, bytes[v]);
    if (is_recomputed) l.recomputed(v, i).needed_at(recompute_time, bytes[v]);
    if (keeps) l.recomputed(v, i).needed_at(back, bytes[v]);
  };
  add(s.out, k.keeps_y);
  for (std::size_t o = s.operands_begin; o < s.operands_end; ++o)
    add(l.steps.operand[o], l.needs.operand[o].keeps);
  if (k.saved == 0) return;
  l.saved_forward(i).needed_at(forward, k.saved);
  if (is_recomputed) l.saved(i).needed_at(recompute_time, k.saved);
  if (l.needs.has_gradient[s.out]) l.saved(i).needed_at(back, k.saved);
}

/// Marks the gradients that step i reads and writes as needed. Called in the order of backward;
/// `written` are the values that already have a gradient.
template <std::size_t Size, std::size_t Operands, bool R>
constexpr void add_gradients(Lifetimes<Size, Operands, R>& l, StepId i,
                             const Table<ValueId, std::size_t, Size>& bytes,
                             Table<ValueId, bool, Size>& written) {
  const PlanStep& s = l.steps.step[i];
  if (!l.needs.has_gradient[s.out]) return;
  const int back = l.times.back[i];
  l.gradient(s.out).needed_at(back, bytes[s.out]);
  for (std::size_t k = s.operands_begin; k < s.operands_end; ++k) {
    if (!l.needs.operand[k].wants_dx) continue;
    const ValueId v = l.steps.operand[k];
    l.gradient(v).needed_at(back, bytes[v]);
    l.adds_dx[k] = written[v];
    written[v] = true;
    if (l.adds_dx[k]) l.temporary(k).needed_at(back, bytes[v]);
  }
}

/// The lifetimes of all buffers. `bytes`: size of each value, per example.
template <bool Recomputes, std::size_t Size, std::size_t Operands>
constexpr Lifetimes<Size, Operands, Recomputes> lifetimes_of(
    const StepList<Size, Operands>& steps, const Needs<Size, Operands>& needs,
    const Timetable<Size>& times, const Sharing<Size>& sharing,
    const Table<ValueId, std::size_t, Size>& bytes) {
  Lifetimes<Size, Operands, Recomputes> result(steps, needs, times, sharing);
  Table<ValueId, bool, Size> written{};
  if (is_computed(steps.output)) {
    const int loss = static_cast<int>(steps.end);
    result.activation(steps.output).needed_at(loss, bytes[steps.output]);
    result.gradient(steps.output).needed_at(loss, bytes[steps.output]);
  }
  written[steps.output] = true;
  if (needs.has_gradient[ValueId::batch])  // read after backward
    result.gradient(ValueId::batch).needed_at(times.back[StepId{0}], bytes[ValueId::batch]);
  for (StepId i = before(steps.end); exists(i); --i) {
    add_values(result, i, bytes);
    add_gradients(result, i, bytes, written);
  }
  return result;
}

}  // namespace lockstep::detail
