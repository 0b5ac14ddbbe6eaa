/// \file
/// Element-wise sums and type conversions, vectorized and on all threads. Invariant: elements are
/// independent, so the bits are those of a plain loop. The exception is a store to bfloat16 by
/// avx512_bf16, which flushes numbers below 1.2e-38 to zero in whole vectors.
#pragma once

#include <cstddef>

#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/cpu/openmp.hpp"

namespace lockstep::detail {

/// Minimum number of elements per thread.
inline constexpr std::size_t elements_grain = 1 << 14;

/// Calls loop(Bytes<N>, first, last) for ranges that cover [0, n), where N is the vector length for
/// elements of type A. The loop must be always_inline.
template <class A, class Loop>
void for_elements(int threads, std::size_t n, const Loop& loop) {
  parallel_ranges(threads, n, elements_grain, [&](Slice part, std::size_t) {
    for_channels_of<typename ComputedIn<A>::type>(
        longest_vectors<A>(), part.count,
        [&](auto bytes, std::size_t first, std::size_t last)
            __attribute__((always_inline)) { loop(bytes, part.first + first, part.first + last); });
  });
}

/// to[i] = a[i] + b[i]; `to` may alias a or b.
template <class A>
[[gnu::noinline]] void add_elements(int threads, const A* a, const A* b, A* to, std::size_t n) {
  using T = typename ComputedIn<A>::type;
  for_elements<A>(threads, n,
                  [=](auto bytes, std::size_t first, std::size_t last)
                      __attribute__((always_inline)) {
                        using V = Lanes<T, bytes.value>;
                        for (std::size_t i = first; i < last; i += lanes_of<T, bytes.value>) {
                          V u, v;
                          load(u, a + i);
                          load(v, b + i);
                          u += v;
                          store(to + i, u);
                        }
                      });
}

/// to[i] = from[i], between bfloat16 and float.
template <class From, class To>
[[gnu::noinline]] void convert_elements(int threads, const From* from, To* to, std::size_t n) {
  using T = typename ComputedIn<From>::type;
  for_elements<bfloat16>(
      threads, n,
      [=](auto bytes, std::size_t first, std::size_t last) __attribute__((always_inline)) {
        for (std::size_t i = first; i < last; i += lanes_of<T, bytes.value>) {
          Lanes<T, bytes.value> v;
          load(v, from + i);
          store(to + i, v);
        }
      });
}

}  // namespace lockstep::detail
