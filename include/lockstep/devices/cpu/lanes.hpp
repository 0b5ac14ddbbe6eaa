/// \file
/// Short vectors for the loops of this device that run over channels. Invariants: no compiler flag
/// is needed, the processor is asked for its vectors when the program runs; a loop is compiled once
/// for vectors, and once for the channels that are left or all of them if there are no vectors;
/// elements in bfloat16 are loaded into lanes of float, and rounded when they are stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "lockstep/core/bfloat16.hpp"

namespace lockstep::detail {

/// Bytes / sizeof(T) elements: the compilers' vector extension, with element-wise operators. One T
/// if Bytes is 0.
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

// By reference: passing wide vectors by value has another calling convention with AVX than without.
template <class V, class T>
[[gnu::always_inline]] inline void load(V& v, const T* p) {
  std::memcpy(&v, p, sizeof v);
}
template <class V, class T>
[[gnu::always_inline]] inline void store(T* p, const V& v) {
  std::memcpy(p, &v, sizeof v);
}

// A bfloat16 is the upper half of a float.
template <class V>
[[gnu::always_inline]] inline void load(V& v, const bfloat16* p) {
  if constexpr (std::is_same_v<V, float>) {
    v = *p;
  } else {
    constexpr std::size_t n = sizeof(V) / 4;
    Lanes<std::uint16_t, 2 * n> halves;
    std::memcpy(&halves, p, sizeof halves);
    [&]<std::size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
      const auto whole =
          __builtin_shufflevector(halves, decltype(halves){}, (I % 2 == 0 ? n + I / 2 : I / 2)...);
      std::memcpy(&v, &whole, sizeof v);
    }(std::make_index_sequence<2 * n>{});
  }
}
template <class V>
[[gnu::always_inline]] inline void store(bfloat16* p, const V& v) {
  if constexpr (std::is_same_v<V, float>) {
    *p = bfloat16(v);
  } else {
    constexpr std::size_t n = sizeof(V) / 4;
    Lanes<std::uint16_t, 2 * n> halves;
#if defined(__x86_64__) && !defined(__clang__)
    if constexpr (sizeof(V) == 64) {  // one instruction; numbers below 1.2e-38 become 0
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
    [&]<std::size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
      halves = __builtin_shufflevector(both, both, (2 * I + 1)...);
    }(std::make_index_sequence<n>{});
    std::memcpy(p, &halves, sizeof halves);
  }
}

/// sums[i] += v[i].
template <class T, class V>
[[gnu::always_inline]] inline void add_lanes(double* sums, const V& v) {
  constexpr std::size_t n = sizeof(V) / sizeof(T);
  T part[n];
  store(part, v);
  for (std::size_t i = 0; i < n; ++i) sums[i] += static_cast<double>(part[i]);
}

/// v[i] = p[which[i]], where `which` is below 4. Reads as many elements as V has.
template <class V, class T, class Which>
[[gnu::always_inline]] inline void choose(V& v, const T* p, const Which& which) {
#if defined(__clang__)
  v = p[0] - V{};
  for (int k = 1; k < 4; ++k) v = which == k ? p[k] - V{} : v;
#else
  V all;
  load(all, p);
  v = __builtin_shuffle(all, which);
#endif
}

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
/// Whether wide vectors can be rounded to bfloat16.
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

/// loop(arguments...) compiled for a processor that has vectors. The loop must be forced inline.
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

/// Bytes of the longest vectors that the processor has for elements A; 0: none that these loops
/// use.
template <class A = float>
std::size_t longest_vectors() {
  const bool wide = std::is_same_v<A, bfloat16> ? has_bfloat16_vectors() : has_wide_vectors();
  return wide ? wide_vector_bytes : has_vectors() ? vector_bytes : 0;
}

/// loop(Bytes<N>) for vectors of `bytes` bytes, which the processor must have: compiled once for
/// each of the two lengths. The loop must be forced inline.
template <class Loop>
void run_with_vectors_of(std::size_t bytes, const Loop& loop) {
  if constexpr (wide_vector_bytes != vector_bytes) {
    if (bytes == wide_vector_bytes) return run_with_wide_vectors(loop);
  }
  run_with_vectors(loop);
}

/// loop(Bytes<vector_bytes>, 0, k), where channels below k fill whole vectors, then loop(Bytes<0>,
/// k, channels); k is 0 without `vectors`. The loop must be forced inline.
template <class T, class N, class Loop>
[[gnu::always_inline]] inline void for_channels(bool vectors, N channels, const Loop& loop) {
  const N k = vectors ? channels - channels % static_cast<N>(lanes_of<T, vector_bytes>) : 0;
  if (k > 0) run_with_vectors(loop, N(0), k);
  if (k < channels) loop(Bytes<0>{}, k, channels);
}

/// As for_channels with vectors of `bytes` bytes, which the processor must have, then with shorter
/// ones for what is left.
template <class T, class N, class Loop>
[[gnu::always_inline]] inline void for_channels_of(std::size_t bytes, N channels,
                                                   const Loop& loop) {
  if constexpr (wide_vector_bytes != vector_bytes) {
    const N k = channels - channels % static_cast<N>(lanes_of<T, wide_vector_bytes>);
    if (bytes == wide_vector_bytes && k > 0) {
      run_with_wide_vectors(loop, N(0), k);
      if (k == channels) return;
      const auto rest = [&](auto width, N first, N last)
                            __attribute__((always_inline)) { loop(width, k + first, k + last); };
      return for_channels<T>(true, channels - k, rest);
    }
  }
  for_channels<T>(bytes > 0, channels, loop);
}

}  // namespace lockstep::detail
