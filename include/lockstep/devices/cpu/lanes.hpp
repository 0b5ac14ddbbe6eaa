/// \file
/// Short vectors for the loops of this device that run over channels, and the choice of their width
/// when the program runs. Invariant: no compiler flag is needed; a processor without AVX2 gets
/// vectors of 16 bytes.
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

/// body(Bytes<Width>, k) for whole vectors of channels from k on, then body(Bytes<0>, k) for each
/// that is left.
template <class T, std::size_t Width, class Body>
[[gnu::always_inline]] inline void for_each_lanes(std::size_t channels, const Body& body) {
  constexpr std::size_t lanes = Width / sizeof(T);
  std::size_t k = 0;
  for (; k + lanes <= channels; k += lanes) body(Bytes<Width>{}, k);
  for (; k < channels; ++k) body(Bytes<0>{}, k);
}

#if defined(__x86_64__)
template <class Loop>
[[gnu::target("avx2,fma"), gnu::noinline]] void run_with_avx2(const Loop& loop) {
  loop(Bytes<32>{});
}
#endif

/// loop(Bytes<width>) with the widest vectors that this processor has. The loop must be forced
/// inline, so that it is compiled for them.
template <class Loop>
void with_widest_lanes(const Loop& loop) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return run_with_avx2(loop);
#endif
  loop(Bytes<16>{});
}

}  // namespace lockstep::detail
