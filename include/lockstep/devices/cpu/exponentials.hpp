/// \file
/// Exponentials of vectors (lanes.hpp) that keep relative accuracy down to the smallest results,
/// where oneDNN's element-wise functions have only absolute accuracy. Errors are below 1e-6 of the
/// result (tests/support/exact_activations.hpp).
///
///     x = n ln 2 + r, |r| <= ln(2) / 2        p = exp(r) - 1, its Taylor polynomial
///     exp(x) = 2^n (1 + p)                    exp(x) - 1 = 2^n p + (2^n - 1)
///
/// Invariant: NaN stays NaN. Arguments and results are passed by reference, as in lanes.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lockstep/devices/cpu/lanes.hpp"

namespace lockstep::detail {

template <class V>
using IntegersOf = Lanes<std::int32_t, sizeof(V)>;

/// factor = 2^n for -126 <= n <= 127.
template <class V, class I>
[[gnu::always_inline, gnu::no_instrument_function]] inline void power_of_two(V& factor,
                                                                             const I& n) {
  const I bits = (n + 127) << 23;
  std::memcpy(&factor, &bits, sizeof factor);
}

/// For x + rest with x <= 0: n, and p = exp(x + rest - n ln 2) - 1.
template <class V, class I>
[[gnu::always_inline, gnu::no_instrument_function]] inline void reduce(V& p, I& n, const V& x,
                                                                       const V& rest) {
  n = __builtin_convertvector(x * 1.44269504f - 0.5f, I);  // truncates, so rounds to nearest
  const V whole = __builtin_convertvector(n, V);
  // ln 2 in two parts: the product with the first one is exact.
  const V r = ((x - whole * 0.693359375f) - whole * -2.12194440e-4f) + rest;
  p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r * r + r;
}

/// y = exp(x + rest) for x <= 0 and |rest| <= 0.1; 0 below the smallest denormal.
template <class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void exp_of_negative(V& y, const V& x,
                                                                                const V& rest) {
  const V least = V{} - 104.0f, bounded = x < least ? least : x;
  IntegersOf<V> n;
  V p, half, other;
  reduce(p, n, bounded, rest);
  power_of_two(half, n >> 1);  // in two steps, since 2^n may be denormal
  power_of_two(other, n - (n >> 1));
  y = (p + 1.0f) * half * other;
}
template <class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void exp_of_negative(V& y, const V& x) {
  exp_of_negative(y, x, V{});
}

/// y = exp(x) - 1 for x <= 0.
template <class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void expm1_of_negative(V& y,
                                                                                  const V& x) {
  const V least = V{} - 87.0f, bounded = x < least ? least : x;
  IntegersOf<V> n;
  V p, factor;
  reduce(p, n, bounded, V{});
  power_of_two(factor, n);
  y = p * factor + (factor - 1.0f);
}

/// y = log(1 + x) for 0 <= x <= 1, as 2 atanh(x / (2 + x)).
template <class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void log1p_of_fraction(V& y,
                                                                                  const V& x) {
  const V s = (x + x) / (x + 2.0f), q = s * s * 0.25f;
  V p = q * (1.0f / 15) + 1.0f / 13;
  p = p * q + 1.0f / 11;
  p = p * q + 1.0f / 9;
  p = p * q + 1.0f / 7;
  p = p * q + 1.0f / 5;
  p = p * q + 1.0f / 3;
  y = s + s * (p * q);
}

/// For x >= 0: `tail`, the probability that a normal variable exceeds x, and exp(-x^2 / 2).
template <class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void normal_tail(V& tail, V& exponential,
                                                                            const V& x) {
  const V most = V{} + 15.0f, a = x > most ? most : x;  // both results are 0 there
  // x^2 in two parts, the first of which is exact: rounding it would be an error of x^2 ulp.
  IntegersOf<V> bits;
  std::memcpy(&bits, &a, sizeof a);
  bits &= ~0xFFF;
  V high;
  std::memcpy(&high, &bits, sizeof a);
  exp_of_negative(exponential, high * high * -0.5f, (a - high) * (a + high) * -0.5f);
  // tail = exp(-x^2 / 2) t P(t) with t = 1 / (1 + 0.3 x): a least-squares fit for 0 <= x <= 15,
  // weighted to a relative error of 2.2e-8.
  const V t = 1.0f / (a * 0.3f + 1.0f);
  V p = t * -0.02062888815999031f + 0.11246602237224579f;
  p = p * t - 0.22828766703605652f;
  p = p * t + 0.19188709557056427f;
  p = p * t - 0.07951229810714722f;
  p = p * t + 0.09620658308267593f;
  p = p * t + 0.07837165892124176f;
  p = p * t + 0.11023946106433868f;
  p = p * t + 0.11957130581140518f;
  p = p * t + 0.11968671530485153f;
  tail = exponential * (p * t);
}

/// Calls loop(Bytes<N>) with the processor's longest vectors for elements of type A, or with those
/// of 16 bytes that the compilers emulate. The loop must be always_inline.
template <class A, class Loop>
void run_with_any_vectors(const Loop& loop) {
  const std::size_t bytes = longest_vectors<A>();
  if (bytes == 0) return loop(Bytes<16>{});
  run_with_vectors_of(bytes, loop);
}

/// Loads or stores `count` elements, at most a whole vector; the rest of v is `other`.
template <class V, class A>
[[gnu::always_inline, gnu::no_instrument_function]] inline void load_some(V& v, const A* p,
                                                                          std::size_t count,
                                                                          float other = 0) {
  constexpr std::size_t lanes = sizeof(V) / sizeof(float);
  if (count >= lanes) return load(v, p);
  A part[lanes];
  for (std::size_t i = 0; i < lanes; ++i) part[i] = i < count ? p[i] : A(other);
  load(v, part);
}
template <class V, class A>
[[gnu::always_inline, gnu::no_instrument_function]] inline void store_some(A* p, const V& v,
                                                                           std::size_t count) {
  constexpr std::size_t lanes = sizeof(V) / sizeof(float);
  if (count >= lanes) return store(p, v);
  A part[lanes];
  store(part, v);
  for (std::size_t i = 0; i < count; ++i) p[i] = part[i];
}

}  // namespace lockstep::detail
