/// \file
/// The square root of a number, or of each number in a vector of the compilers' extension: with
/// errno, as the compilers have it by default, a loop over std::sqrt is no vector instruction.
/// Invariant: rounded as std::sqrt, so both give the same bits.
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
/// The function that it is inlined into must have the vector's instructions.
template <class V>
[[gnu::always_inline]] inline void sqrt_in_place(V& v) {
#if defined(__x86_64__) && !defined(__clang__)  // clang wants to know AVX here already
  if constexpr (std::same_as<std::remove_cvref_t<decltype(v[0])>, float>)
    asm("vsqrtps %0, %0" : "+x"(v));
  else
    asm("vsqrtpd %0, %0" : "+x"(v));
#else
  for (unsigned i = 0; i < sizeof(V) / sizeof v[0]; ++i) v[i] = std::sqrt(v[i]);
#endif
}

}  // namespace lockstep::detail
