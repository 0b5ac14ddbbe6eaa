/// \file
/// Element-wise optimizers on every device over host memory. Invariants: one pass over weights,
/// gradients and slots; the penalty's gradient is added there and left in the gradient; the numbers
/// of the rule are of the device's type.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <utility>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace detail {

template <class, class T>
using RepeatedReference = T&;

template <class Rule, class T, class Indices>
inline constexpr bool takes_slots = false;
template <class Rule, class T, std::size_t... I>
inline constexpr bool takes_slots<Rule, T, std::index_sequence<I...>> =
    std::invocable<const Rule&, T&, T, RepeatedReference<Constant<I>, T>...>;

/// The loop. The rule comes by value and the pointers do not alias, so that it becomes SIMD code.
template <bool HasPenalty, class Rule, class T, class... Slots>
void update_elements(const Rule rule, const T l1, const T l2, const std::size_t size,
                     T* __restrict w, T* __restrict g, Slots* __restrict... slot) {
  for (std::size_t i = 0; i < size; ++i) {
    if constexpr (HasPenalty) g[i] += (w[i] > 0 ? l1 : w[i] < 0 ? -l1 : T(0)) + 2 * l2 * w[i];
    rule(w[i], g[i], slot[i]...);
  }
}

}  // namespace detail

template <ElementwiseUpdate Op, HostDevice D>
struct Kernel<Op, D> : KernelTraits {
  using T = typename D::real;

  /// \throws UsageError if the op's rule has no form for op.slots() slots.
  [[gnu::noinline]] static void update(const Op& op, const UpdateIo<D>& io) {
    bool done = false;
    switch (op.slots()) {
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
      throw UsageError({"optimizer: its rule has no form for ", op.slots(),
                        " slots; add operator()(T& w, T g, T&... slot) with as many"});
  }

 private:
  template <std::size_t... I>
  static bool run(const Op& op, const UpdateIo<D>& io, std::index_sequence<I...>) {
    const auto rule = op.template rule<T>();
    if constexpr (detail::takes_slots<decltype(op.template rule<T>()), T,
                                      std::index_sequence<I...>>) {
      const T l1 = static_cast<T>(io.penalty.l1), l2 = static_cast<T>(io.penalty.l2);
      if (io.penalty)
        detail::update_elements<true>(rule, l1, l2, io.size, io.w, io.g, io.slot[I]...);
      else
        detail::update_elements<false>(rule, l1, l2, io.size, io.w, io.g, io.slot[I]...);
      return true;
    } else {
      return false;
    }
  }
};

}  // namespace lockstep
