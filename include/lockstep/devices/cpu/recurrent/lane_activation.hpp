/// \file
/// Activations of a recurrent layer's units, vectorized: those of smooth_activations.hpp, tanh and
/// sigmoid; others element by element.
#pragma once

#include <cstddef>

#include "lockstep/devices/cpu/exponentials.hpp"
#include "lockstep/devices/cpu/smooth_activations.hpp"
#include "lockstep/layers/activations/sigmoid.hpp"
#include "lockstep/layers/activations/tanh.hpp"

namespace lockstep::detail {

/// An activation for vectors; `slope` takes y or x, as `derivative` of the op does.
template <class A>
struct LaneActivation {
  static constexpr bool from_y = A::from_y;
  const A& op;
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] void value(V& y, const V& x) const {
    if constexpr (IsSmooth<A>)
      SmoothActivation<A>::value(y, x);
    else
      each(y, x, [&](float v) __attribute__((always_inline, no_instrument_function)) {
        return op.value(v);
      });
  }
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] void slope(V& d, const V& known) const {
    if constexpr (IsSmooth<A>)
      SmoothActivation<A>::derivative(d, known);
    else
      each(d, known, [&](float v) __attribute__((always_inline, no_instrument_function)) {
        return op.derivative(v);
      });
  }

 private:
  template <class V, class Function>
  [[gnu::always_inline, gnu::no_instrument_function]] static void each(V& to, const V& from,
                                                                       const Function& f) {
    constexpr std::size_t lanes = sizeof(V) / sizeof(float);
    float part[lanes];
    store(part, from);
    for (float& v : part) v = f(v);
    load(to, part);
  }
};
template <>
struct LaneActivation<SigmoidOp> {
  static constexpr bool from_y = true;
  const SigmoidOp& op;
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] void value(V& y, const V& x) const {
    V e;
    exp_of_negative(e, x > 0 ? -x : x);
    y = (x > 0 ? V{} + 1.0f : e) / (e + 1.0f);
  }
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] void slope(V& d, const V& y) const {
    d = y * (1.0f - y);
  }
};
template <>
struct LaneActivation<TanhOp> {
  static constexpr bool from_y = true;
  const TanhOp& op;
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] void value(V& y, const V& x) const {
    V e;
    expm1_of_negative(e, (x > 0 ? -x : x) * 2.0f);
    y = e / (e + 2.0f);
    y = x > 0 ? -y : y;
  }
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] void slope(V& d, const V& y) const {
    d = 1.0f - y * y;
  }
};

}  // namespace lockstep::detail
