/// \file
/// Reductions over all axes but the last, channel by channel: shared by global pooling,
/// normalizations and their gradients. Invariants: adjacent threads handle adjacent channels, so
/// loads are coalesced; the order of a sum depends only on the sizes.
///
///                 channels ->  tile 0             tile 1
///       rows    part 0         block: lanes x     block
///        |                     threads / lanes
///        v      part 1         block              block
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "lockstep/devices/cuda/commands.hpp"
#include "lockstep/devices/cuda/program.hpp"

namespace lockstep::detail::cuda {

/// The mapping of blocks to (rows, channels): a block covers `lanes` channels and `threads / lanes`
/// rows at a time.
struct Columns {
  static constexpr unsigned threads = 256;

  explicit Columns(std::size_t all_channels)
      : channels(all_channels), lanes(std::min<std::size_t>(32, std::bit_ceil(channels))) {}
  std::size_t channels, lanes;
  /// Blocks needed to cover all channels.
  std::size_t tiles() const { return (channels + lanes - 1) / lanes; }
  /// Rows that a block covers at a time.
  std::size_t rows() const { return threads / lanes; }

  /// The number of parts that the rows are cut into, one per block, for sums in two stages.
  int parts(std::size_t of_rows) const {
    const std::size_t at_a_time = rows() * tall, most = std::max<std::size_t>(512 / tiles(), 1);
    return static_cast<int>(
        std::clamp<std::size_t>((of_rows + at_a_time - 1) / at_a_time, 1, most));
  }
  /// Blocks ordered by part, then by tile.
  Grid grid(int parts) const {
    return {{static_cast<unsigned>(tiles() * static_cast<std::size_t>(parts)), 1, 1},
            {threads, 1, 1}};
  }
  /// Space for two sums of each part and channel.
  std::size_t scratch_bytes(int parts) const {
    return 2 * channels * static_cast<std::size_t>(parts) * sizeof(double);
  }

 private:
  static constexpr std::size_t tall = 8;
};

/// Helpers for reductions; needs the defines LANES and CHANNELS, see Columns.
///
/// - `LANE`, `ROW`: this thread's position in its block; `ROWS`: rows of threads.
/// - `column_sum(x)`: the sum over the block's threads with the same LANE. All threads must call it
///   and all get the result. `column_of(x, f)`: the same with f(a, b) instead of a + b.
/// - `CHANNEL`: this thread's channel, which may be CHANNELS or more. `PART`: this block's part.
///   `FOR_TALL_ROWS(row)`: this thread's rows, TALL at a time: row + i * ROWS for i below TALL;
///   uses `rows` and `count`, the number of parts. `tall_rows(row, rows, f)` calls f for each of
///   them, unrolled. f must not branch on a kernel argument, which keeps the compiler from loading
///   ahead: branch outside of the loop.
/// - `put_part(parts, count, a, b)`: stores two sums of this block in `parts` (2, channels, count);
///   all threads call it. `sums_of_parts(parts, count, workspace, f)` follows, called by all
///   threads: the last block of a tile calls f(channel, a, b) with the sums over all parts, in one
///   thread per channel.
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

// N rows, if that many are left: all loads are issued before the first store.
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
