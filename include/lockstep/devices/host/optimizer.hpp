/// \file
/// Element-wise optimizers on every device over host memory. Invariants: one pass over weights,
/// gradients and slots; the penalty's gradient is added in that pass and remains in the gradient
/// buffer; the coefficients of the rule are of the device's type.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <utility>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/devices/host/adjust.hpp"

namespace lockstep {

namespace detail {

template <class, class T>
using RepeatedReference = T&;

template <class Rule, class T, class Indices>
inline constexpr bool accepts_slots = false;
template <class Rule, class T, std::size_t... I>
inline constexpr bool accepts_slots<Rule, T, std::index_sequence<I...>> =
    std::invocable<const Rule&, T&, T, RepeatedReference<Constant<I>, T>...>;

/// Work on an element before the rule: none, adding the penalty's gradient, or all of Adjust.
enum class Prologue { none, penalty, all };

/// The update loop. It vectorizes because the rule is passed by value and the pointers do not
/// alias.
template <Prologue prologue, class Rule, class T, class... Slots>
[[gnu::always_inline]] inline void update_elements(const Rule rule, const Adjust<T> adjust,
                                                   const std::size_t size, T* __restrict w,
                                                   T* __restrict g, Slots* __restrict... slot) {
  for (std::size_t i = 0; i < size; ++i) {
    if constexpr (prologue == Prologue::all) {
      rule(w[i], adjust(w[i], g[i]), slot[i]...);
    } else {
      if constexpr (prologue == Prologue::penalty)
        g[i] += penalty_gradient(w[i], adjust.l1, adjust.l2);
      rule(w[i], g[i], slot[i]...);
    }
  }
}

/// Loop policy of ElementwiseKernel: all elements in order, on the calling thread.
struct UpdateInOrder {
  template <Prologue prologue, class Rule, class D, class... Slots>
  static void run(const Rule& rule, const UpdateIo<D>& io, Slots*... slot) {
    update_elements<prologue>(rule, adjust_of(io), io.size, io.w, io.g, slot...);
  }
};

/// Kernel of an element-wise optimizer; `Loop` is the device's loop policy. The number of slots is
/// known at run time only, so it is dispatched to a rule with that many references.
template <class Op, class D, class Loop>
struct ElementwiseKernel : KernelTraits {
  using T = typename D::real;

  /// \throws UsageError if the op's rule cannot be called with op.slot_count() slots.
  static void update(const Op& op, const UpdateIo<D>& io) {
    bool done = false;
    switch (op.slot_count()) {
      case 0:
        done = run(op, io, std::make_index_sequence<0>{});
        break;
      case 1:
        done = run(op, io, std::make_index_sequence<1>{});
        break;
      case 2:
        done = run(op, io, std::make_index_sequence<2>{});
        break;
      case 3:
        done = run(op, io, std::make_index_sequence<3>{});
        break;
      case 4:
        done = run(op, io, std::make_index_sequence<4>{});
        break;
      default:
        break;
    }
    if (!done)
      throw UsageError(
          "optimizer: the rule cannot be called with {} slots; add operator()(T& w, T g, T&... "
          "slot) with that many slots",
          op.slot_count());
  }

 private:
  template <std::size_t... I>
  static bool run(const Op& op, const UpdateIo<D>& io, std::index_sequence<I...>) {
    const auto rule = op.template rule<T>();
    if constexpr (accepts_slots<decltype(op.template rule<T>()), T, std::index_sequence<I...>>) {
      if (io.is_adjusted())
        Loop::template run<Prologue::all>(rule, io, io.slot[I]...);
      else if (io.penalty)
        Loop::template run<Prologue::penalty>(rule, io, io.slot[I]...);
      else
        Loop::template run<Prologue::none>(rule, io, io.slot[I]...);
      return true;
    } else {
      return false;
    }
  }
};

}  // namespace detail

template <ElementwiseUpdate Op, HostDevice D>
struct Kernel<Op, D> : detail::ElementwiseKernel<Op, D, detail::UpdateInOrder> {
  using library_kernel = Kernel;
};

}  // namespace lockstep
