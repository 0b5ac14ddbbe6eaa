/// \file
/// Row-wise work on the last axis: a warp per short row, a block per long row. Invariant: the order
/// of a sum over a row depends only on its length.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/devices/cuda/commands.hpp"
#include "lockstep/devices/cuda/program.hpp"

namespace lockstep::detail::cuda {

/// The team of threads that shares a row of `width` elements: a warp up to 1024, else a block.
struct Rows {
  static constexpr unsigned threads = 256;

  explicit Rows(std::size_t all_of_a_row)
      : width(all_of_a_row), team(width <= 1024 ? 32 : threads) {}
  std::size_t width, team;
  Grid grid(std::size_t rows) const { return Grid::over(rows * team, threads); }
};

/// Helpers for rows; needs the defines WIDTH and TEAM, see Rows.
///
/// - `FOR_EACH_ROW(row)`: this team's share of `rows`. `FOR_MINE(k)`: this thread's elements of a
///   row.
/// - `row_sum(x)`, `row_max(x)`: over the team; all of its threads must call them and all get the
///   result.
/// - `Part`: the type for a thread's partial sum: double if it adds more than 16 elements.
inline constexpr char rows_functions[] = R"cuda(
#define MEMBER ((int)threadIdx.x % TEAM)
#define FOR_EACH_ROW(row) for (i64 row = INDEX / TEAM; row < rows; row += STRIDE / TEAM)
#define FOR_MINE(k) for (int k = MEMBER; k < WIDTH; k += TEAM)

#if WIDTH / TEAM > 16
typedef double Part;
#else
typedef float Part;
#endif

template <class T>
__device__ inline T row_sum(T x) {
#if TEAM == 32
  return warp_sum(x);
#else
  return block_sum(x);
#endif
}
__device__ inline float row_max(float x) {
  x = warp_max(x);
#if TEAM > 32
  __shared__ float part[32];
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  for (int w = 0; w < TEAM / 32; ++w) x = fmaxf(x, part[w]);
#endif
  return x;
}
)cuda";

}  // namespace lockstep::detail::cuda
