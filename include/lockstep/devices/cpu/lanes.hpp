/// \file
/// Short vectors for the loops of this device that run over channels. Invariants: no compiler flag
/// is needed, the processor is asked for its vectors when the program runs; a loop is compiled once
/// for vectors, and once for the channels that are left or all of them if there are no vectors.
#pragma once

#include <cstddef>
#include <cstring>

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

template <std::size_t N>
struct Bytes {
  static constexpr std::size_t value = N;
};

#if defined(__x86_64__)
#define LOCKSTEP_VECTORS gnu::noinline, gnu::target("avx2,fma")
#define LOCKSTEP_WIDE_VECTORS gnu::noinline, gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")
inline constexpr std::size_t vector_bytes = 32, wide_vector_bytes = 64;
inline bool has_vectors() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
inline bool has_wide_vectors() {
  return has_vectors() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
#define LOCKSTEP_VECTORS gnu::noinline
#define LOCKSTEP_WIDE_VECTORS gnu::noinline
inline constexpr std::size_t vector_bytes = 16, wide_vector_bytes = 16;
inline bool has_vectors() { return true; }
inline bool has_wide_vectors() { return false; }
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

/// Bytes of the longest vectors that the processor has; 0: none that these loops use.
inline std::size_t longest_vectors() {
  return has_wide_vectors() ? wide_vector_bytes : has_vectors() ? vector_bytes : 0;
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
template <class T, class Loop>
[[gnu::always_inline]] inline void for_channels(bool vectors, int channels, const Loop& loop) {
  const int k = vectors ? channels - channels % lanes_of<T, vector_bytes> : 0;
  if (k > 0) run_with_vectors(loop, 0, k);
  if (k < channels) loop(Bytes<0>{}, k, channels);
}

/// As for_channels with vectors of `bytes` bytes, which the processor must have, then with shorter
/// ones for what is left.
template <class T, class Loop>
[[gnu::always_inline]] inline void for_channels_of(std::size_t bytes, int channels,
                                                   const Loop& loop) {
  if constexpr (wide_vector_bytes != vector_bytes) {
    const int k = channels - channels % lanes_of<T, wide_vector_bytes>;
    if (bytes == wide_vector_bytes && k > 0) {
      run_with_wide_vectors(loop, 0, k);
      if (k == channels) return;
      const auto rest = [&](auto width, int first, int last) __attribute__((always_inline)) {
        loop(width, k + first, k + last);
      };
      return for_channels<T>(true, channels - k, rest);
    }
  }
  for_channels<T>(bytes > 0, channels, loop);
}

}  // namespace lockstep::detail
