/// \file
/// Element-wise sums, type conversions and clamps, vectorized and on all threads. Invariant:
/// elements are independent, so the bits are those of a plain loop. The exception is a store to
/// bfloat16 by avx512_bf16, which flushes numbers below 1.2e-38 to zero in whole vectors.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

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
            __attribute__((always_inline, no_instrument_function)) {
              loop(bytes, part.first + first, part.first + last);
            });
  });
}

/// to[i] = a[i] + b[i]; `to` may alias a or b.
template <class A>
[[gnu::noinline]] void add_elements(int threads, const A* a, const A* b, A* to, std::size_t n) {
  using T = typename ComputedIn<A>::type;
  for_elements<A>(threads, n,
                  [=](auto bytes, std::size_t first, std::size_t last)
                      __attribute__((always_inline, no_instrument_function)) {
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
  for_elements<bfloat16>(threads, n,
                         [=](auto bytes, std::size_t first, std::size_t last) __attribute__((
                             always_inline, no_instrument_function)) {
                           for (std::size_t i = first; i < last; i += lanes_of<T, bytes.value>) {
                             Lanes<T, bytes.value> v;
                             load(v, from + i);
                             store(to + i, v);
                           }
                         });
}

/// Whether all magnitudes are below 2^50. Sums of fewer than 2^26 products of such numbers neither
/// overflow nor are NaN. Only bits are tested: comparisons of NaN are false, or folded away under
/// -ffast-math.
template <class A>
[[gnu::noinline]] bool are_moderate(int threads, const A* p, std::size_t n) {
  using T = typename ComputedIn<A>::type;
  constexpr std::int32_t limit = 0x58800000;  // the bits of 2^50
  std::atomic<bool> result{true};
  for_elements<A>(threads, n,
                  [&](auto bytes, std::size_t first, std::size_t last)
                      __attribute__((always_inline, no_instrument_function)) {
                        using I = Lanes<std::int32_t, bytes.value>;
                        constexpr int lanes = lanes_of<T, bytes.value>;
                        I all{};  // negative where a magnitude is not below the limit
                        for (std::size_t i = first; i < last; i += lanes) {
                          Lanes<T, bytes.value> v;
                          I magnitude;
                          load(v, p + i);
                          std::memcpy(&magnitude, &v, sizeof v);
                          all |= (limit - 1) - (magnitude & 0x7FFFFFFF);
                        }
                        std::int32_t part[lanes], whole = 0;
                        store(part, all);
                        for (const std::int32_t one : part) whole |= one;
                        if (whole < 0) result.store(false, std::memory_order_relaxed);
                      });
  return result.load(std::memory_order_relaxed);
}

/// y[i] = min(max(x[i], 0), most), where NaN stays NaN and -0 becomes 0; y may alias x. Replaces
/// the forward passes of oneDNN's ReLU and clip, alone and as post-ops, which map NaN to 0.
template <class A>
[[gnu::noinline]] void rectify(int threads, const A* x, A* y, std::size_t n,
                               typename ComputedIn<A>::type most) {
  using T = typename ComputedIn<A>::type;
  for_elements<A>(threads, n,
                  [=](auto bytes, std::size_t first, std::size_t last)
                      __attribute__((always_inline, no_instrument_function)) {
                        using V = Lanes<T, bytes.value>;
                        const V zero{}, top = zero + most;
                        for (std::size_t i = first; i < last; i += lanes_of<T, bytes.value>) {
                          V v;
                          load(v, x + i);
                          v = v <= zero ? zero : v;
                          v = v > top ? top : v;
                          store(y + i, v);
                        }
                      });
}

}  // namespace lockstep::detail
