/// \file
/// Short SIMD vectors for loops over channels, dispatched at run time.
///
///     channels  | 16 floats | 16 floats | 8 floats | rest |      Width, bytes per vector
///     AVX-512     64          64          32         0           (0: one element at a time)
///     AVX2        32 32       32 32       32         0
///     neither     0                                              the scalar loop for all channels
///
/// Invariants: no compiler flag is needed, since the program queries the processor; each loop is a
/// template over the vector length and is compiled once per length, plus once for single elements;
/// bfloat16 elements are widened to float when loaded and rounded when stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "lockstep/core/numbers/bfloat16.hpp"

namespace lockstep::detail {

/// A vector of Bytes / sizeof(T) elements, by the compilers' vector extension, with element-wise
/// operators; a single T if Bytes is 0.
template <class T, std::size_t Bytes>
struct LanesOf {
  typedef T type __attribute__((vector_size(Bytes)));
};
template <class T>
struct LanesOf<T, 0> {
  using type = T;
};
template <class T, std::size_t Bytes>
using Lanes = typename LanesOf<T, Bytes>::type;
template <class T, std::size_t Bytes>
inline constexpr int lanes_of = static_cast<int>(sizeof(Lanes<T, Bytes>) / sizeof(T));

// Vectors are passed by reference: by value, the calling convention differs with and without AVX.
template <class V, class T>
[[gnu::always_inline, gnu::no_instrument_function]] inline void load(V& v, const T* p) {
  std::memcpy(&v, p, sizeof v);
}
template <class V, class T>
[[gnu::always_inline, gnu::no_instrument_function]] inline void store(T* p, const V& v) {
  std::memcpy(p, &v, sizeof v);
}

// Widening: a bfloat16 is the upper half of a float, so zeros are interleaved below each element.
template <class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void load(V& v, const bfloat16* p) {
  if constexpr (std::is_same_v<V, float>) {
    v = *p;
  } else {
    constexpr std::size_t n = sizeof(V) / 4;
    Lanes<std::uint16_t, 2 * n> halves;
    std::memcpy(&halves, p, sizeof halves);
    [&]<std::size_t... I>(std::index_sequence<I...>)
        __attribute__((always_inline, no_instrument_function)) {
          const auto whole = __builtin_shufflevector(halves, decltype(halves){},
                                                     (I % 2 == 0 ? n + I / 2 : I / 2)...);
          std::memcpy(&v, &whole, sizeof v);
        }(std::make_index_sequence<2 * n>{});
  }
}
// Rounds to nearest, ties to even; keeps NaN quiet.
template <class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void store(bfloat16* p, const V& v) {
  if constexpr (std::is_same_v<V, float>) {
    *p = bfloat16(v);
  } else {
    constexpr std::size_t n = sizeof(V) / 4;
    Lanes<std::uint16_t, 2 * n> halves;
#if defined(__x86_64__) && !defined(__clang__)
    if constexpr (sizeof(V) == 64) {  // one instruction, which flushes denormals to zero
      __asm__("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(v));
      std::memcpy(p, &halves, sizeof halves);
      return;
    }
#endif
    Lanes<std::uint32_t, sizeof(V)> bits;
    Lanes<std::uint16_t, sizeof(V)> both;
    std::memcpy(&bits, &v, sizeof v);
    const auto even = bits + (0x7FFF + ((bits >> 16) & 1));
    bits = (bits & 0x7FFFFFFF) > 0x7F800000 ? bits | 0x400000 : even;
    std::memcpy(&both, &bits, sizeof v);
    [&]<std::size_t... I>(std::index_sequence<I...>)
        __attribute__((always_inline, no_instrument_function)) {
          halves = __builtin_shufflevector(both, both, (2 * I + 1)...);
        }(std::make_index_sequence<n>{});
    std::memcpy(p, &halves, sizeof halves);
  }
}

/// sums[i] += v[i].
template <class T, class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void add_lanes(double* sums,
                                                                          const V& v) {
  constexpr std::size_t n = sizeof(V) / sizeof(T);
  T part[n];
  store(part, v);
  for (std::size_t i = 0; i < n; ++i) sums[i] += static_cast<double>(part[i]);
}

/// In-register transpose of N vectors of N elements: swaps the off-diagonal S x S blocks of each 2 S x
/// 2 S square, then recurses with S / 2.
template <int S, class V, std::size_t N, std::size_t... I>
[[gnu::always_inline, gnu::no_instrument_function]] inline void exchange_lanes(
    V& a, V& b, std::index_sequence<I...>) {
  const V first = __builtin_shufflevector(a, b, ((I & S) == 0 ? I : I - S + N)...);
  b = __builtin_shufflevector(a, b, ((I & S) == 0 ? I + S : I + N)...);
  a = first;
}
template <class V, std::size_t N, int S = static_cast<int>(N / 2)>
[[gnu::always_inline, gnu::no_instrument_function]] inline void transpose_lanes(V (&row)[N]) {
  if constexpr (S > 0) {
#pragma GCC unroll 16
    for (std::size_t r = 0; r < N; ++r)
      if ((r & S) == 0) exchange_lanes<S, V, N>(row[r], row[r + S], std::make_index_sequence<N>{});
    transpose_lanes<V, N, S / 2>(row);
  }
}

/// v[i] = p[which[i]], where each which[i] is below 4. Reads a whole vector from p.
template <class V, class T, class Which>
[[gnu::always_inline, gnu::no_instrument_function]] inline void choose(V& v, const T* p,
                                                                       const Which& which) {
#if defined(__clang__)
  v = p[0] - V{};
  for (int k = 1; k < 4; ++k) v = which == k ? p[k] - V{} : v;
#else
  V all;
  load(all, p);
  v = __builtin_shuffle(all, which);
#endif
}

/// A vector length as a type, for generic lambdas.
template <std::size_t N>
struct Bytes {
  static constexpr std::size_t value = N;
};

#if defined(__x86_64__)
#define LOCKSTEP_VECTORS gnu::noinline, gnu::target("avx2,fma")
#define LOCKSTEP_WIDE_VECTORS \
  gnu::noinline, gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")
inline constexpr std::size_t vector_bytes = 32, wide_vector_bytes = 64;
inline bool has_vectors() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
inline bool has_wide_vectors() {
  return has_vectors() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
/// Whether the processor rounds wide vectors to bfloat16.
inline bool has_bfloat16_vectors() {
  return has_wide_vectors() && __builtin_cpu_supports("avx512bf16");
}
#else
#define LOCKSTEP_VECTORS gnu::noinline
#define LOCKSTEP_WIDE_VECTORS gnu::noinline
inline constexpr std::size_t vector_bytes = 16, wide_vector_bytes = 16;
inline bool has_vectors() { return true; }
inline bool has_wide_vectors() { return false; }
inline bool has_bfloat16_vectors() { return false; }
#endif

/// Calls loop(Bytes, arguments...) in a function compiled for the processor's vectors. The loop
/// must be always_inline, as otherwise it is compiled for the baseline processor.
template <class Loop, class... Arguments>
[[LOCKSTEP_VECTORS]] void run_with_vectors(const Loop& loop, Arguments... arguments) {
  loop(Bytes<vector_bytes>{}, arguments...);
}
template <class Loop, class... Arguments>
[[LOCKSTEP_WIDE_VECTORS]] void run_with_wide_vectors(const Loop& loop, Arguments... arguments) {
  loop(Bytes<wide_vector_bytes>{}, arguments...);
}
#undef LOCKSTEP_VECTORS
#undef LOCKSTEP_WIDE_VECTORS

/// Length in bytes of the processor's longest vectors for elements of type A; 0 if it has none that
/// these loops support.
template <class A = float>
std::size_t longest_vectors() {
  const bool wide = std::is_same_v<A, bfloat16> ? has_bfloat16_vectors() : has_wide_vectors();
  return wide ? wide_vector_bytes : has_vectors() ? vector_bytes : 0;
}

/// Calls loop(Bytes<N>) with N = `bytes`, which the processor must support. Compiles the loop once
/// for each of the two lengths; it must be always_inline.
template <class Loop>
void run_with_vectors_of(std::size_t bytes, const Loop& loop) {
  if constexpr (wide_vector_bytes != vector_bytes) {
    if (bytes == wide_vector_bytes) return run_with_wide_vectors(loop);
  }
  run_with_vectors(loop);
}

/// Calls loop(Bytes<vector_bytes>, 0, k) for the channels that fill whole vectors, then
/// loop(Bytes<0>, k, channels) for the rest; k is 0 if `vectors` is false. The loop must be
/// always_inline.
template <class T, class N, class Loop>
[[gnu::always_inline, gnu::no_instrument_function]] inline void for_channels(bool vectors,
                                                                             N channels,
                                                                             const Loop& loop) {
  const N k = vectors ? channels - channels % static_cast<N>(lanes_of<T, vector_bytes>) : 0;
  if (k > 0) run_with_vectors(loop, N(0), k);
  if (k < channels) loop(Bytes<0>{}, k, channels);
}

/// As for_channels, with vectors of `bytes` bytes, which the processor must support; the rest uses
/// the shorter vectors, then single elements.
template <class T, class N, class Loop>
[[gnu::always_inline, gnu::no_instrument_function]] inline void for_channels_of(std::size_t bytes,
                                                                                N channels,
                                                                                const Loop& loop) {
  if constexpr (wide_vector_bytes != vector_bytes) {
    const N k = channels - channels % static_cast<N>(lanes_of<T, wide_vector_bytes>);
    if (bytes == wide_vector_bytes && k > 0) {
      run_with_wide_vectors(loop, N(0), k);
      if (k == channels) return;
      const auto rest = [&](auto width, N first, N last)
                            __attribute__((always_inline, no_instrument_function)) {
                              loop(width, k + first, k + last);
                            };
      return for_channels<T>(true, channels - k, rest);
    }
  }
  for_channels<T>(bytes > 0, channels, loop);
}

}  // namespace lockstep::detail
