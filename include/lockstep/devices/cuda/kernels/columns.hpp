/// \file
/// Sums over all but the last axis, column by column: what pooling of whole images, normalizations
/// and their gradients share. Invariants: a block has `threads` threads, neighbours in a row have
/// neighbouring channels, so that reads are whole lines; the order of a sum is fixed by the sizes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

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
};

/// Needs the define LANES; see Columns.
///
/// - `LANE`, `ROW`: of this thread in its block; `ROWS`: rows of threads.
/// - `column_sum(x)`: the sum over the threads of the block with the same LANE; all threads of the
///   block call it, and all get it. `column_of(x, f)`: likewise with f(a, b) instead of a + b.
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
)cuda";

}  // namespace lockstep::detail::cuda
