/// \file
/// The inner loops of every gather: one row of stored elements is converted to the device's type.
/// Invariant: an element is converted to T first and then multiplied and added in T, so the results
/// in float and in double are each well defined.
#pragma once

#include <cstddef>

namespace lockstep {

namespace detail {

/// out[i] = f(in[i]). The inner loop has a constant trip count because g++ 12 at `-O2` vectorizes
/// only such loops.
template <class T, class E, class F>
inline void transform_row(const E* __restrict in, T* __restrict out, std::size_t n, F f) {
  constexpr std::size_t block = 16;
  std::size_t i = 0;
  for (; i + block <= n; i += block)
    for (std::size_t j = 0; j < block; ++j) out[i + j] = f(in[i + j]);
  for (; i < n; ++i) out[i] = f(in[i]);
}

/// out[i] = T(in[i])
template <class T, class E>
inline void copy_row(const E* in, T* out, std::size_t n) {
  transform_row(in, out, n, [](E e) { return static_cast<T>(e); });
}

/// out[i] = T(in[i]) * scale + offset
template <class T, class E>
inline void copy_row(const E* in, T* out, std::size_t n, T scale, T offset) {
  transform_row(in, out, n, [=](E e) { return static_cast<T>(e) * scale + offset; });
}

/// Prefetches the `n` elements of a row that will be read soon. Rows in shuffled order are too far
/// apart for the hardware prefetcher.
template <class E>
inline void read_ahead(const E* row, std::size_t n) {
  constexpr std::size_t line = 64 / sizeof(E);
  for (std::size_t i = 0; i < n; i += line) __builtin_prefetch(row + i);
}

}  // namespace detail

}  // namespace lockstep
