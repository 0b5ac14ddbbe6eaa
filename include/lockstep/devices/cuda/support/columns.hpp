/// \file
/// Sums over all but the last axis, column by column: what pooling of whole images, normalizations
/// and their gradients share. Invariants: a block has `threads` threads, neighbours in a row have
/// neighbouring channels, so that reads are whole lines; the order of a sum is fixed by the sizes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "lockstep/devices/cuda/commands.hpp"
#include "lockstep/devices/cuda/program.hpp"

namespace lockstep::detail::cuda {

/// How blocks lie over (rows, channels): a block has `lanes` channels and `threads / lanes` rows at
/// a time.
struct Columns {
  static constexpr unsigned threads = 256;

  explicit Columns(std::size_t all_channels)
      : channels(all_channels), lanes(std::min<std::size_t>(32, std::bit_ceil(channels))) {}
  std::size_t channels, lanes;
  /// Blocks side by side.
  std::size_t tiles() const { return (channels + lanes - 1) / lanes; }
  std::size_t rows() const { return threads / lanes; }

  /// Parts that so many rows are cut into, one a block, for sums in two stages.
  int parts(std::size_t of_rows) const {
    const std::size_t at_a_time = rows() * tall, most = std::max<std::size_t>(512 / tiles(), 1);
    return static_cast<int>(
        std::clamp<std::size_t>((of_rows + at_a_time - 1) / at_a_time, 1, most));
  }
  Grid grid(int parts) const {
    return {{static_cast<unsigned>(tiles() * static_cast<std::size_t>(parts)), 1, 1},
            {threads, 1, 1}};
  }
  /// Two sums of each part.
  std::size_t scratch_bytes(int parts) const {
    return 2 * channels * static_cast<std::size_t>(parts) * sizeof(double);
  }

 private:
  static constexpr std::size_t tall = 8;
};

/// Needs the defines LANES and CHANNELS; see Columns.
///
/// - `LANE`, `ROW`: of this thread in its block; `ROWS`: rows of threads.
/// - `column_sum(x)`: the sum over the threads of the block with the same LANE; all threads of the
///   block call it, and all get it. `column_of(x, f)`: likewise with f(a, b) instead of a + b.
/// - `CHANNEL`: of this thread; may be CHANNELS or more. `PART`: of this block.
///   `FOR_TALL_ROWS(row)`: this thread's rows, TALL of them at a time: row + i * ROWS for i below
///   TALL. It uses `rows` and `count`, the number of parts. `tall_rows(row, rows, f)` calls f with
///   each of these, unrolled. A choice by an argument of the kernel keeps the compiler from reading
///   ahead if f makes it: make it before the loop.
/// - `put_part(parts, count, a, b)`: two sums of this block, to `parts` (2, channels, count). All
///   threads call it. `sums_of_parts(parts, count, workspace, f)`, called behind it by all threads: the
///   last block of those with the same channels calls f(channel, a, b) with the sums over all of
///   them, in one thread for each channel.
inline constexpr char columns_functions[] = R"cuda(
#define THREADS 256
#define ROWS (THREADS / LANES)
#define LANE ((int)threadIdx.x % LANES)
#define ROW ((int)threadIdx.x / LANES)

template <class T, class F>
__device__ inline T column_of(T x, F f) {
  __shared__ T part[THREADS];
  __syncthreads();
  part[threadIdx.x] = x;
  __syncthreads();
  for (int half = THREADS / 2; half >= LANES; half /= 2) {
    if ((int)threadIdx.x < half) part[threadIdx.x] = f(part[threadIdx.x], part[threadIdx.x + half]);
    __syncthreads();
  }
  return part[LANE];
}
template <class T>
__device__ inline T column_sum(T x) {
  return column_of(x, [](T a, T b) { return a + b; });
}

#define TILES ((CHANNELS + LANES - 1) / LANES)
#define CHANNEL ((int)(blockIdx.x % TILES) * LANES + LANE)
#define PART ((int)(blockIdx.x / TILES))
#define TALL 8
#define FOR_TALL_ROWS(row)                                  \
  for (i64 row = (i64)PART * ROWS * TALL + ROW; row < rows; \
       row += (i64)count * ROWS * TALL)

// N rows, if there are as many: all are read before the first is written.
template <int N, class F>
__device__ inline bool few_rows(i64& row, i64 rows, const F& f) {
  if (row + (N - 1) * ROWS >= rows) return false;
#pragma unroll
  for (int i = 0; i < N; ++i) f(row + i * ROWS);
  row += N * ROWS;
  return true;
}
template <class F>
__device__ inline void tall_rows(i64 row, i64 rows, const F& f) {
  if (few_rows<TALL>(row, rows, f)) return;
  few_rows<TALL / 2>(row, rows, f);
  few_rows<TALL / 4>(row, rows, f);
  few_rows<TALL / 8>(row, rows, f);
}

__device__ inline void put_part(double* parts, int count, double a, double b) {
  a = column_sum(a);
  b = column_sum(b);
  if (ROW > 0 || CHANNEL >= CHANNELS) return;
  parts[(i64)CHANNEL * count + PART] = a;
  parts[(i64)(CHANNELS + CHANNEL) * count + PART] = b;
}
#define GROUPS (TILES < 1024 ? TILES : 1024)
template <class F>
__device__ inline void sums_of_parts(const double* parts, int count, Sums* workspace, const F& f) {
  const int group = blockIdx.x % TILES % GROUPS;
  const u32 tiles = (TILES - group + GROUPS - 1) / GROUPS;
  if (!last_to_arrive(workspace, tiles * (u32)count, group)) return;
  for (int tile = group; tile < TILES; tile += GROUPS)
    for (int k = tile * LANES + threadIdx.x / 32; k < min((tile + 1) * LANES, CHANNELS);
         k += THREADS / 32) {
      const double* const of_a = parts + (i64)k * count;
      const double* const of_b = of_a + (i64)CHANNELS * count;
      double a = 0, b = 0;
#pragma unroll 8
      for (int p = threadIdx.x % 32; p < count; p += 32) {
        a += of_a[p];
        b += of_b[p];
      }
      a = warp_sum(a);
      b = warp_sum(b);
      if (threadIdx.x % 32 == 0) f(k, a, b);
    }
}
)cuda";

}  // namespace lockstep::detail::cuda
