/// \file
/// Convolution of images with few channels, ReLU and max pooling in one pass, as text: the
/// convolution is never stored. Invariants: a thread handles one filter, whose weights, or gradient
/// sums, are in registers; a block holds the pixels of a tile of windows in shared memory; ties go
/// to the first element in row-major order; a window without a positive element has no winner, so
/// the ReLU needs no mask; the order of a sum depends only on the sizes.
///
///     block:  threads / LANES windows at a time x LANES filters
///     shared memory:  pixels[HEIGHT][PITCH], the image part under TILE_ROWS x TILE_COLUMNS windows
#pragma once

#include <algorithm>
#include <vector>

#include "lockstep/devices/cuda/support/convolution_text.hpp"
#include "lockstep/devices/fused_relu.hpp"

namespace lockstep::detail::cuda {

/// The tile of windows whose pixels a block loads at once; tiles cover all windows of an example.
struct PoolTile {
  int rows = 1, columns = 1;  ///< windows

  /// About `wanted` windows, in full rows where possible, within `max_numbers` pixels.
  static constexpr PoolTile of(const ConvReLUPoolOp& op, int wanted) {
    const Shape out = op.out();
    PoolTile t;
    t.columns = even(out[1], wanted);
    while (t.columns > 1 && t.numbers(op) > max_numbers) t.columns = even(out[1], t.columns - 1);
    t.rows = even(out[0], std::max(wanted / t.columns, 1));
    while (t.rows > 1 && t.numbers(op) > max_numbers) t.rows = even(out[0], t.rows - 1);
    return t;
  }
  constexpr int down(const ConvReLUPoolOp& op) const { return (op.out()[0] + rows - 1) / rows; }
  constexpr int across(const ConvReLUPoolOp& op) const {
    return (op.out()[1] + columns - 1) / columns;
  }

  /// Height of the tile in pixels, with the border; width in numbers (pixels x channels).
  constexpr int height(const ConvReLUPoolOp& op) const {
    return extent(rows, op.pool.window.rows(), op.conv.rows());
  }
  constexpr int width(const ConvReLUPoolOp& op) const {
    return extent(columns, op.pool.window.columns(), op.conv.columns()) * op.conv.channels();
  }
  /// Distance between rows of pixels. It is half of the 32 banks beyond a multiple of them, so that
  /// the pixels of a 2 x 2 window are in different banks.
  constexpr int pitch(const ConvReLUPoolOp& op) const { return (width(op) + 15) / 32 * 32 + 16; }
  constexpr int numbers(const ConvReLUPoolOp& op) const { return height(op) * pitch(op); }

  static constexpr int max_numbers = 4096;

 private:
  /// Splits `all` into about equal parts of at most `most`.
  static constexpr int even(int all, int most) {
    const int parts = (all + most - 1) / most;
    return (all + parts - 1) / parts;
  }
  /// Pixels under a number of windows.
  static constexpr int extent(int windows, const Window& pool, const Window& conv) {
    return ((windows - 1) * pool.stride + pool.kernel - 1) * conv.stride + conv.extent();
  }
};

/// Filters per block: threads with adjacent filters.
constexpr int pooled_lanes(int filters) {
  int lanes = 1;
  while (lanes < 32 && lanes < filters) lanes *= 2;
  return lanes;
}

/// The geometry of the convolution, the pooling and the tiles, as defines.
template <class Precision>
std::vector<Define> pooled_convolution_defines(const ConvReLUPoolOp& op, const PoolTile& tile,
                                               int threads) {
  const Pooling2DWindow& w = op.pool.window;
  std::vector<Define> defines = convolution_defines(op.conv);
  for (const Define& d : {Define("POOL_HEIGHT", w.pool.height),
                          {"POOL_WIDTH", w.pool.width},
                          {"DOWN", w.strides.height * op.conv.strides.height},
                          {"ACROSS", w.strides.width * op.conv.strides.width},
                          {"ROWS", op.out()[0]},
                          {"COLUMNS", op.out()[1]},
                          {"TILE_ROWS", tile.rows},
                          {"TILE_COLUMNS", tile.columns},
                          {"TILES_DOWN", tile.down(op)},
                          {"TILES_ACROSS", tile.across(op)},
                          {"HEIGHT", tile.height(op)},
                          {"WIDTH", tile.width(op)},
                          {"PITCH", tile.pitch(op)},
                          {"LANES", pooled_lanes(op.conv.filters)},
                          {"BIAS", op.conv.bias ? 1 : 0},
                          {"THREADS", threads},
                          {"ACTIVATION", activation_code<Precision>}})
    defines.push_back(d);
  return defines;
}

inline constexpr char pooled_convolution_functions[] = R"cuda(
#define TAPS (KERNEL_HEIGHT * KERNEL_WIDTH * CHANNELS)
#define POOL (POOL_HEIGHT * POOL_WIDTH)
#define NO_WINNER 255
typedef unsigned char Winner;

__shared__ float pixels[HEIGHT * PITCH];

// Offsets in `pixels`: of tap t from the first tap, and of element p of a window.
__device__ inline int place_of_tap(int t) {
  return t / CHANNELS / KERNEL_WIDTH * DILATION_Y * PITCH +
         t / CHANNELS % KERNEL_WIDTH * DILATION_X * CHANNELS + t % CHANNELS;
}
__device__ inline int place_of_element(int p) {
  return p / POOL_WIDTH * STRIDE_Y * PITCH + p % POOL_WIDTH * STRIDE_X * CHANNELS;
}

struct Tile {
  int example, row, column;  // of its first window
};
__device__ inline Tile tile_at(int i) {
  Tile t;
  t.column = i % TILES_ACROSS * TILE_COLUMNS;
  t.row = i / TILES_ACROSS % TILES_DOWN * TILE_ROWS;
  t.example = i / TILES_ACROSS / TILES_DOWN;
  return t;
}
// Called by all threads of the block; pixels outside of the image are 0.
__device__ inline void read_pixels(const A* __restrict__ x, Tile t) {
  const int top = t.row * DOWN - TOP, left = (t.column * ACROSS - LEFT) * CHANNELS;
  const A* const image = x + (i64)t.example * (IN_HEIGHT * IN_WIDTH * CHANNELS);
  for (int i = threadIdx.x; i < HEIGHT * WIDTH; i += THREADS) {
    const int r = top + i / WIDTH, c = left + i % WIDTH;
    const bool inside = (u32)r < IN_HEIGHT && (u32)c < IN_WIDTH * CHANNELS;
    pixels[i / WIDTH * PITCH + i % WIDTH] =
        inside ? get(image[r * (IN_WIDTH * CHANNELS) + c]) : 0.0f;
  }
}
// Calls visit(pixels of the window, offset of its result) for each of this thread's windows in the
// tile; `f` is its filter. Loads for several windows are in flight at once.
template <int at_once, class Visit>
__device__ inline void for_each_window(Tile t, int f, const Visit& visit) {
#pragma unroll at_once
  for (int i = threadIdx.x / LANES; i < TILE_ROWS * TILE_COLUMNS; i += THREADS / LANES) {
    const int r = i / TILE_COLUMNS, c = i % TILE_COLUMNS;
    if (t.row + r < ROWS && t.column + c < COLUMNS)
      visit(pixels + (r * (DOWN * PITCH) + c * (ACROSS * CHANNELS)),
            (((i64)t.example * ROWS + t.row + r) * COLUMNS + t.column + c) * FILTERS + f);
  }
}
)cuda";

/// The grid is tiles of all examples x groups of LANES filters.
inline constexpr char pooled_convolution_forward_text[] = R"cuda(
__device__ inline float positive(float v) { return v < 0 ? 0.0f : v; }  // NaN propagates

KERNEL(forward)(const A* __restrict__ x, const float* __restrict__ w, A* __restrict__ y,
                Winner* __restrict__ winners) {
  const int f = blockIdx.y * LANES + threadIdx.x % LANES;
  const bool is_filter = f < FILTERS;
  float weight[TAPS];
#pragma unroll
  for (int t = 0; t < TAPS; ++t) weight[t] = is_filter ? w[t * FILTERS + f] : 0.0f;
  const float bias = BIAS && is_filter ? w[TAPS * FILTERS + f] : 0.0f;
  const Tile tile = tile_at(blockIdx.x);
  read_pixels(x, tile);
  __syncthreads();
  if (!is_filter) return;
  for_each_window<TAPS * POOL <= 64 ? 2 : 1>(tile, f, [&](const float* at, i64 out) {
    float sum[POOL];
#pragma unroll
    for (int p = 0; p < POOL; ++p) sum[p] = bias;
#pragma unroll
    for (int t = 0; t < TAPS; ++t)
#pragma unroll
      for (int p = 0; p < POOL; ++p)
        sum[p] += at[place_of_element(p) + place_of_tap(t)] * weight[t];
    float best = positive(sum[0]);
    int winner = 0;
#pragma unroll
    for (int p = 1; p < POOL; ++p) {
      const float v = positive(sum[p]);
      if (v > best || v != v) {
        best = v;
        winner = p;
      }
    }
    y[out] = put<A>(best);
    winners[out] = (Winner)(best <= 0 ? NO_WINNER : winner);
  });
}
)cuda";

/// The grid is ranges of the tiles of all examples x groups of LANES filters; the last block of a
/// group to arrive adds up the ranges. `dw`, and each of `parts`, holds the weights, then the bias.
inline constexpr char pooled_convolution_backward_text[] = R"cuda(
#define SUMS (TAPS + BIAS)
#define AT_ONCE 8  // sums that the block reduces together

KERNEL(backward)(const A* __restrict__ x, const A* __restrict__ dy,
                 const Winner* __restrict__ winners, float* parts, float* dw, Sums* workspace,
                 int tiles, int tiles_each) {
  __shared__ float part[AT_ONCE * THREADS];
  const int first_filter = blockIdx.y * LANES, f = first_filter + threadIdx.x % LANES;
  float sum[SUMS] = {};
#if BIAS
  double of_bias = 0;
#endif
  const int begin = blockIdx.x * tiles_each, end = min(tiles, begin + tiles_each);
  for (int i = begin; i < end; ++i) {
    const Tile tile = tile_at(i);
    __syncthreads();
    read_pixels(x, tile);
    __syncthreads();
    if (f < FILTERS)
      for_each_window<TAPS <= 16 ? 4 : TAPS <= 36 ? 2 : 1>(tile, f, [&](const float* at, i64 out) {
        const int winner = winners[out];
        const float of_result = get(dy[out]);
        const float gradient = winner == NO_WINNER ? 0.0f : of_result;
        at += winner == NO_WINNER ? 0 : place_of_element(winner);
#pragma unroll
        for (int t = 0; t < TAPS; ++t) sum[t] += at[place_of_tap(t)] * gradient;
#if BIAS
        sum[TAPS] += gradient;
#endif
      });
#if BIAS
    of_bias += sum[TAPS];
    sum[TAPS] = 0;
#endif
  }
#if BIAS
  sum[TAPS] = (float)of_bias;
#endif

  float* const mine = gridDim.x == 1 ? dw : parts + (i64)blockIdx.x * (SUMS * FILTERS);
#pragma unroll
  for (int first = 0; first < SUMS; first += AT_ONCE) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k)
      if (first + k < SUMS) part[k * THREADS + threadIdx.x] = sum[first + k];
    __syncthreads();
    const int k = threadIdx.x / LANES, n = threadIdx.x % LANES;
    if (k >= AT_ONCE || first + k >= SUMS || f >= FILTERS) continue;
    float whole = 0;
    for (int i = n; i < THREADS; i += LANES) whole += part[k * THREADS + i];
    mine[(first + k) * FILTERS + f] = whole;
  }
  if (gridDim.x == 1 || !last_to_arrive(workspace, gridDim.x, blockIdx.y)) return;
  const float* const all = parts;
  for (int i = threadIdx.x; i < SUMS * LANES; i += THREADS) {
    const int n = first_filter + i % LANES, at = i / LANES * FILTERS + n;
    if (n >= FILTERS) continue;
    double whole = 0;
#pragma unroll 16
    for (u32 p = 0; p < gridDim.x; ++p) whole += all[(i64)p * (SUMS * FILTERS) + at];
    dw[at] = (float)whole;
  }
}
)cuda";

}  // namespace lockstep::detail::cuda
