/// \file
/// The square root of a scalar, or element by element of a vector (compilers' vector extension). A
/// loop over std::sqrt is not vectorized, since std::sqrt must set errno by default. Invariant:
/// rounded like std::sqrt, so both give the same bits.
#pragma once

#include <cmath>
#include <concepts>
#include <type_traits>

namespace lockstep::detail {

/// v = sqrt(v).
template <std::floating_point T>
void sqrt_in_place(T& v) {
  v = std::sqrt(v);
}
/// The enclosing function must be compiled for the vector's instruction set. g++'s
/// -finstrument-functions compiles a function apart, too, unless it is excluded.
template <class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void sqrt_in_place(V& v) {
#if defined(__x86_64__) && !defined(__clang__)  // clang checks for AVX here, before inlining
  if constexpr (std::same_as<std::remove_cvref_t<decltype(v[0])>, float>)
    asm("vsqrtps %0, %0" : "+x"(v));
  else
    asm("vsqrtpd %0, %0" : "+x"(v));
#else
  for (unsigned i = 0; i < sizeof(V) / sizeof v[0]; ++i) v[i] = std::sqrt(v[i]);
#endif
}

}  // namespace lockstep::detail
