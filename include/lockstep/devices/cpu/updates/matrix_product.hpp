/// \file
/// Products of matrices whose bits depend on the operands only, for updates that replicas on different
/// machines must make alike; oneDNN does not promise that. Invariant: each element is a chain of
/// multiply-adds in the order of the inner index, for any number of threads and any vectors. Optimized
/// builds round each of them once, on processors without vectors, too.
///
///     columns   | panel | panel | ...          divided among the threads
///     inner     | block | block | ...          one after the other; sums are kept in `out`, so that
///                                              few blocks are read and written less often
///     rows      | tile | tile | ... | rest     of R rows, in registers
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/core/slice.hpp"
#include "lockstep/data/scratch.hpp"
#include "lockstep/devices/cpu/denormals.hpp"
#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/cpu/openmp.hpp"
#include "lockstep/devices/host/muon.hpp"

namespace lockstep::detail {

/// Loop policy of MuonKernel: products in vectors, on all threads.
struct ProductsInVectors {
  using Scope = FlushDenormalsScope;

  /// `bytes`: length of the vectors, which the processor must support, or 0.
  template <class T, class Context>
  static void multiply(Context& context, const MatrixProduct<T>& p,
                       std::size_t bytes = longest_vectors()) {
    const std::size_t width = columns_of_panel<T>(bytes);
    const std::size_t panels = (p.columns + width - 1) / width;
    // A panel of 2^20 products is worth a thread.
    const std::size_t grain = (std::size_t{1} << 20) / (p.rows * p.inner * width) + 1;
    parallel_ranges(context.threads(), panels, grain, [&](Slice part, std::size_t) {
      const FlushDenormalsScope flushes;
      const auto run = [&](auto length) __attribute__((always_inline, no_instrument_function)) {
        multiply_panels<length.value>(p, part, panels);
      };
      if (bytes == 0) return run(Bytes<0>{});
      run_with_vectors_of(bytes, run);
    });
    if (!p.is_symmetric) return;
    for (std::size_t i = 0; i < p.rows; ++i)
      for (std::size_t j = 0; j < i; ++j) p.out[i * p.columns + j] = p.out[j * p.columns + i];
  }

 private:
  static constexpr std::size_t rows_of_tile = 6;
  /// The inner index within a block. Up to 128 KiB of a panel stay in the second-level cache, from which a tile reads them
  /// in order.
  static constexpr std::size_t depth = 512;

  /// Memory for a panel of a block, one per thread, that begins at a cache line.
  template <class T>
  static T* memory_of_panel(std::size_t width) {
    constexpr std::size_t line = 64;
    const std::span<T> all =
        pipeline::scratch<ProductsInVectors, 0, T>(depth * width + line / sizeof(T));
    const std::size_t past = reinterpret_cast<std::uintptr_t>(all.data()) % line;
    return all.data() + (line - past) / sizeof(T);
  }

  /// Vectors of a tile's row: as many sums as the registers hold.
  template <std::size_t Bytes>
  static constexpr std::size_t vectors_of_tile = Bytes == 64 ? 4 : 2;
  template <class T>
  static std::size_t columns_of_panel(std::size_t bytes) {
    return (bytes == 64 ? 4 : 2) * std::max(bytes / sizeof(T), std::size_t{1});
  }

  /// The panels `part` of all. Those of a symmetric result have unequal work, so a thread gets them
  /// from both ends.
  template <std::size_t Bytes, class T>
  [[gnu::always_inline, gnu::no_instrument_function]] static inline void multiply_panels(
      const MatrixProduct<T>& p, Slice part, std::size_t panels) {
    constexpr std::size_t width = vectors_of_tile<Bytes> * std::size_t{lanes_of<T, Bytes>};
    T* const packed = memory_of_panel<T>(width);
    for (std::size_t k = 0; k < p.inner; k += depth) {
      const std::size_t count = std::min(depth, p.inner - k);
      for (std::size_t n = part.first; n < part.first + part.count; ++n) {
        const std::size_t panel = n % 2 == 0 ? n / 2 : panels - 1 - n / 2;
        const std::size_t first = panel * width, columns = std::min(width, p.columns - first);
        for (std::size_t q = 0; q < count; ++q) {
          const T* const from = p.right + (k + q) * p.columns + first;
          std::copy_n(from, columns, packed + q * width);
          std::fill_n(packed + q * width + columns, width - columns, T(0));
        }
        const std::size_t rows = p.is_symmetric ? std::min(p.rows, first + columns) : p.rows;
        std::size_t i = 0;
        for (; i + rows_of_tile <= rows; i += rows_of_tile)
          tile<Bytes, rows_of_tile>(p, packed, i, first, columns, k, count);
        for (; i < rows; ++i) tile<Bytes, 1>(p, packed, i, first, columns, k, count);
      }
    }
  }

  /// R rows of a panel: out += left packed, or out = left packed for the first block.
  template <std::size_t Bytes, std::size_t R, class T>
  [[gnu::always_inline, gnu::no_instrument_function]] static inline void tile(
      const MatrixProduct<T>& p, const T* packed, std::size_t row, std::size_t first,
      std::size_t columns, std::size_t k, std::size_t count) {
    using V = Lanes<T, Bytes>;
    constexpr std::size_t n = vectors_of_tile<Bytes>, lanes = std::size_t{lanes_of<T, Bytes>};
    constexpr std::size_t width = n * lanes;
    V sum[R][n] = {};
    T* const out = p.out + row * p.columns + first;
    const T* const left = p.left + row * p.inner + k;
    alignas(64) T rest[width] = {};
    if (k > 0) {
#pragma GCC unroll 6
      for (std::size_t r = 0; r < R; ++r) {
        const T* from = out + r * p.columns;
        if (columns < width) {
          for (std::size_t j = 0; j < columns; ++j) rest[j] = from[j];
          from = rest;
        }
#pragma GCC unroll 4
        for (std::size_t v = 0; v < n; ++v) load(sum[r][v], from + v * lanes);
      }
    }
    for (std::size_t q = 0; q < count; ++q) {
      V values[n];
#pragma GCC unroll 4
      for (std::size_t v = 0; v < n; ++v) load(values[v], packed + q * width + v * lanes);
#pragma GCC unroll 6
      for (std::size_t r = 0; r < R; ++r) {
        const T factor = left[r * p.inner + q];
#pragma GCC unroll 4
        for (std::size_t v = 0; v < n; ++v)
          if constexpr (Bytes == 0)
            sum[r][v] = std::fma(factor, values[v], sum[r][v]);
          else
            sum[r][v] += factor * values[v];  // the compiler fuses the two operations
      }
    }
#pragma GCC unroll 6
    for (std::size_t r = 0; r < R; ++r) {
      T* const to = out + r * p.columns;
#pragma GCC unroll 4
      for (std::size_t v = 0; v < n; ++v)
        store((columns < width ? rest : to) + v * lanes, sum[r][v]);
      if (columns < width)
        for (std::size_t j = 0; j < columns; ++j) to[j] = rest[j];
    }
  }
};

}  // namespace lockstep::detail
