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
template <std::size_t Size, bool Recomputes>
struct Lifetimes {
  const StepList<Size>& steps;
  const Needs<Size>& needs;
  const Timetable<Size>& times;
  const Sharing<Size>& sharing;
  std::array<ArenaBuffer, (Recomputes ? 7 : 5) * Size>
      buffer;                                       // no {}: g++ 12 would then zero all members,
                                                    // despite their initializers
  Table<StepId, bool, Size> adds_dx{}, adds_dx2{};  ///< whether the value already has a gradient

  constexpr Lifetimes(const StepList<Size>& s, const Needs<Size>& n, const Timetable<Size>& t,
                      const Sharing<Size>& sh)
      : steps(s), needs(n), times(t), sharing(sh) {}

  constexpr ArenaBuffer& activation(ValueId v) { return of(0, sharing.memory[v]); }
  constexpr ArenaBuffer& saved(StepId i) { return of(1, i); }
  constexpr ArenaBuffer& gradient(ValueId v) {
    return sharing.gradient_overwrites_value[v] ? activation(v) : of(2, sharing.memory[v]);
  }
  /// Where a kernel writes a gradient that is added to an existing one.
  constexpr ArenaBuffer& temporary(StepId i) { return of(3, i); }
  constexpr ArenaBuffer& temporary2(StepId i) { return of(4, i); }
  /// The buffer of v that recomputation and backward of step i use.
  constexpr ArenaBuffer& recomputed(ValueId v, StepId i) {
    if constexpr (Recomputes) {
      const StepId by = needs.producer[v];
      if (exists(by) && times.is_recomputed[by] && steps.step[by].segment == steps.step[i].segment)
        return of(5, sharing.memory[v]);
    }
    return activation(v);
  }
  constexpr ArenaBuffer& saved_forward(StepId i) {
    if constexpr (Recomputes)
      if (times.is_recomputed[i]) return of(6, i);
    return saved(i);
  }

 private:
  constexpr ArenaBuffer& of(std::size_t kind, auto id) {
    return buffer[kind * Size + static_cast<std::size_t>(id)];
  }
};

/// Marks the values of step i, and the data that its kernel saves, as needed.
template <std::size_t Size, bool R>
constexpr void add_values(Lifetimes<Size, R>& l, StepId i,
                          const Table<ValueId, std::size_t, Size>& bytes) {
  const PlanStep& s = l.steps.step[i];
  const KernelNeeds& k = l.needs.kernel[i];
  const int forward = static_cast<int>(i), back = l.times.back[i],
            recompute_time = l.times.recompute_time[i];
  const bool is_recomputed = l.times.is_recomputed[i];
  for (const ValueId v : {s.out, s.in0, s.in1}) {
    if (!is_computed(v)) continue;
    l.activation(v).needed_at(forward, bytes[v]);
    if (is_recomputed) l.recomputed(v, i).needed_at(recompute_time, bytes[v]);
  }
  const auto keep = [&](bool keeps, ValueId v) {
    if (keeps && is_computed(v)) l.recomputed(v, i).needed_at(back, bytes[v]);
  };
  keep(k.keeps_y, s.out);
  keep(k.keeps_x, s.in0);
  keep(k.keeps_x2, s.in1);
  if (k.saved == 0) return;
  l.saved_forward(i).needed_at(forward, k.saved);
  if (is_recomputed) l.saved(i).needed_at(recompute_time, k.saved);
  if (l.needs.has_gradient[s.out]) l.saved(i).needed_at(back, k.saved);
}

/// Marks the gradients that step i reads and writes as needed. Called in the order of backward;
/// `written` are the values that already have a gradient.
template <std::size_t Size, bool R>
constexpr void add_gradients(Lifetimes<Size, R>& l, StepId i,
                             const Table<ValueId, std::size_t, Size>& bytes,
                             Table<ValueId, bool, Size>& written) {
  const PlanStep& s = l.steps.step[i];
  if (!l.needs.has_gradient[s.out]) return;
  const int back = l.times.back[i];
  l.gradient(s.out).needed_at(back, bytes[s.out]);
  const auto write = [&](ValueId v, ArenaBuffer& temporary, bool& adds) {
    if (!exists(v) || !l.needs.has_gradient[v]) return;
    l.gradient(v).needed_at(back, bytes[v]);
    adds = written[v];
    written[v] = true;
    if (adds) temporary.needed_at(back, bytes[v]);
  };
  write(s.in0, l.temporary(i), l.adds_dx[i]);
  write(s.in1, l.temporary2(i), l.adds_dx2[i]);
}

/// The lifetimes of all buffers. `bytes`: size of each value, per example.
template <bool Recomputes, std::size_t Size>
constexpr Lifetimes<Size, Recomputes> lifetimes_of(const StepList<Size>& steps,
                                                   const Needs<Size>& needs,
                                                   const Timetable<Size>& times,
                                                   const Sharing<Size>& sharing,
                                                   const Table<ValueId, std::size_t, Size>& bytes) {
  Lifetimes<Size, Recomputes> result(steps, needs, times, sharing);
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
