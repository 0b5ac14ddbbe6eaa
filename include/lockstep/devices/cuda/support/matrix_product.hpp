/// \file
/// Matrix products by lockstep's own kernel, for dense layers and, with other index functions, for
/// convolutions. Used where NVIDIA's libraries are missing, refuse, or are slower. Invariants:
/// operands are staged as tiles in shared memory, and each thread accumulates 4 x 4 results; the
/// order of a sum depends only on the sizes.
///
///     for each step of DEPTH along k, by all 256 threads of a block:
///       global memory -> registers (next tiles) | shared memory -> 4 x 4 multiply-adds per k
///       barrier; registers -> shared memory; barrier
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/devices/cuda/context.hpp"
#include "lockstep/devices/precision_policy.hpp"

namespace lockstep::detail::cuda {

/// Computes a tile of a product with a block of 256 threads. `product_tile<rows, columns, left
/// along k, right along k>(factors, first_row, first_column, rows, columns, begin, end, put)` calls
/// put(m, n, sum over k in [begin, end) of left(m, k) * right(k, n)) for each element of the tile
/// within `rows` x `columns`. The factors provide `Row`, precomputed data of row m; `Row row(int
/// m)`; `float left(Row, int k)`; `float right(int k, int n)`. "Along k" means that adjacent
/// elements in memory differ in k; it decides which thread loads what, for coalescing.
inline constexpr char product_tile_text[] = R"cuda(
#define DEPTH 16
#define THREADS 256

template <int tile_rows, int tile_columns, bool left_along, bool right_along, class Factors,
          class Put>
__device__ inline void product_tile(const Factors& factors, int first_row, int first_column,
                                    int rows, int columns, int begin, int end, const Put& put_sum) {
  alignas(16) __shared__ float l[DEPTH][tile_rows + 4], r[DEPTH][tile_columns + 4];
  const int rows_each = tile_rows / 16, columns_each = tile_columns / 16;
  const int t = threadIdx.x;

  // The elements of the tiles that this thread loads.
  const int left_k0 = left_along ? t % DEPTH : t / tile_rows;
  const int left_m0 = left_along ? t / DEPTH : t % tile_rows;
  const int right_k0 = right_along ? t % DEPTH : t / tile_columns;
  const int right_n0 = right_along ? t / DEPTH : t % tile_columns;
#define L_M(i) (left_m0 + (left_along ? (i) * 16 : 0))
#define L_K(i) (left_k0 + (left_along ? 0 : (i) * (THREADS / tile_rows)))
#define R_N(i) (right_n0 + (right_along ? (i) * 16 : 0))
#define R_K(i) (right_k0 + (right_along ? 0 : (i) * (THREADS / tile_columns)))
  typename Factors::Row left_row[left_along ? rows_each : 1];
#pragma unroll
  for (int i = 0; i < (left_along ? rows_each : 1); ++i)
    left_row[i] = factors.row(min(first_row + L_M(i), rows - 1));

  float next_left[rows_each], next_right[columns_each];
  const auto read = [&](int from) {
#pragma unroll
    for (int i = 0; i < rows_each; ++i) {
      const int k = from + L_K(i);
      next_left[i] = k < end && first_row + L_M(i) < rows
                         ? factors.left(left_row[left_along ? i : 0], k)
                         : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < columns_each; ++i) {
      const int k = from + R_K(i), n = first_column + R_N(i);
      next_right[i] = k < end && n < columns ? factors.right(k, n) : 0.0f;
    }
  };

  float sum[4][4] = {};
  const int across = t % (tile_columns / 4) * 4, down = t / (tile_columns / 4) * 4;
  read(begin);
  for (int from = begin; from < end; from += DEPTH) {
#pragma unroll
    for (int i = 0; i < rows_each; ++i) l[L_K(i)][L_M(i)] = next_left[i];
#pragma unroll
    for (int i = 0; i < columns_each; ++i) r[R_K(i)][R_N(i)] = next_right[i];
    __syncthreads();
    if (from + DEPTH < end) read(from + DEPTH);
#pragma unroll
    for (int k = 0; k < DEPTH; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] += l[k][down + i] * r[k][across + j];
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int m = first_row + down + i, n = first_column + across + j;
      if (m < rows && n < columns) put_sum(m, n, sum[i][j]);
    }
}
)cuda";

/// out[m, n] = sum over k of left(m, k) * right(k, n), plus bias[n]: `rows` x COLUMNS, PITCH apart,
/// over `depth`; then ReLU with RELU, which preserves NaN. With OF_WEIGHTS, right has type A and
/// out is float; otherwise right is float and out has type A.
///
/// The functions before it define `struct Row`, `Row row(int m)`, `float at_left(const A*, Row, int
/// k)` and `float at_right(const Right*, int k, int n)` for product_tile; LEFT_ALONG and
/// RIGHT_ALONG too.
///
/// The grid is tiles of rows x tiles of columns x ranges of the depth (split-k). With more than one
/// range each writes partial sums, which add_parts adds up.
inline constexpr JoinedText matrix_product_text(product_tile_text, R"cuda(
__device__ inline float finished(float sum) { return RELU && sum < 0 ? 0.0f : sum; }

struct Matrices {
  typedef ::Row Row;
  const A* __restrict__ from_left;
  const Right* __restrict__ from_right;
  __device__ Row row(int m) const { return ::row(m); }
  __device__ float left(Row at, int k) const { return at_left(from_left, at, k); }
  __device__ float right(int k, int n) const { return at_right(from_right, k, n); }
};

KERNEL(product)(const A* __restrict__ left, const Right* __restrict__ right, const float* bias,
                Out* out, float* parts, int rows, int depth, int depth_each) {
  const int begin = blockIdx.z * depth_each, end = min(depth, begin + depth_each);
  const Matrices matrices = {left, right};
  product_tile<TILE_ROWS, TILE_COLUMNS, LEFT_ALONG, RIGHT_ALONG>(
      matrices, blockIdx.x * TILE_ROWS, blockIdx.y * TILE_COLUMNS, rows, COLUMNS, begin, end,
      [&](int m, int n, float sum) {
        if (gridDim.z == 1)
          out[(i64)m * PITCH + n] = put<Out>(finished(bias ? sum + bias[n] : sum));
        else
          parts[((i64)blockIdx.z * rows + m) * COLUMNS + n] = sum;
      });
}

KERNEL(add_parts)(const float* parts, const float* bias, Out* out, i64 n, int count) {
  FOR_EACH(i, n) {
    float sum = bias ? bias[i % COLUMNS] : 0.0f;
    for (int p = 0; p < count; ++p) sum += parts[p * n + i];
    out[i / COLUMNS * PITCH + i % COLUMNS] = put<Out>(finished(sum));
  }
}
)cuda");

/// Index functions of plain matrices: (m, k) of the left one at m * LEFT_M + k * LEFT_K, (k, n) of
/// the right one at k * RIGHT_K + n * RIGHT_N.
inline constexpr char plain_matrices_text[] = R"cuda(
#if OF_WEIGHTS
typedef A Right;
typedef float Out;
#else
typedef float Right;
typedef A Out;
#endif
struct Row {
  i64 at;
};
__device__ inline Row row(int m) {
  Row r;
  r.at = (i64)m * LEFT_M;
  return r;
}
__device__ inline float at_left(const A* p, Row r, int k) { return get(p[r.at + (i64)k * LEFT_K]); }
__device__ inline float at_right(const Right* p, int k, int n) {
  return get(p[(i64)k * RIGHT_K + (i64)n * RIGHT_N]);
}
)cuda";

/// The sizes of a product. Either `rows` or `depth` varies with the number of examples. `pitch` is
/// the distance between two rows of the result; 0 stands for `columns`.
struct ProductSizes {
  std::int64_t rows = 0, columns = 0, depth = 0, pitch = 0;
};

/// How a product is divided among blocks.
struct ProductCut {
  int tile_rows = 64, tile_columns = 64;
  int parts = 1;       ///< ranges of the depth
  int depth_each = 0;  ///< length of a range

  /// Chooses the tile shape that wastes least. `any_rows`: assume many rows, so that the compiled
  /// kernel does not depend on their number.
  constexpr void choose_tile(const ProductSizes& s, bool any_rows) {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const int width : {64, 32, 16, 128, 256}) {
      const int height = 4096 / width;
      if (any_rows && width > 64) continue;
      const std::int64_t down = any_rows ? height : (s.rows + height - 1) / height * height;
      const std::int64_t across = (s.columns + width - 1) / width * width;
      const std::int64_t area = any_rows ? across : down * across;
      if (area >= least) continue;
      least = area;
      tile_rows = height;
      tile_columns = width;
    }
  }
  /// Splits the depth to occupy all multiprocessors and to keep each float sum short, for accuracy.
  constexpr void choose_parts(const ProductSizes& s, int multiprocessors) {
    const std::int64_t tiles =
        ((s.rows + tile_rows - 1) / tile_rows) * ((s.columns + tile_columns - 1) / tile_columns);
    const std::int64_t wanted =
        std::max((2 * multiprocessors + tiles - 1) / tiles, (s.depth + longest - 1) / longest);
    const std::int64_t affordable =
        std::max<std::int64_t>(max_scratch / 4 / (s.rows * s.columns), 1);
    const std::int64_t useful = std::max<std::int64_t>(s.depth / shortest, 1);
    std::int64_t n = std::min({wanted, affordable, useful, std::int64_t{65535}});
    const std::int64_t each = ((s.depth + n - 1) / n + 15) / 16 * 16;
    depth_each = static_cast<int>(each);
    parts = static_cast<int>((s.depth + each - 1) / each);
  }

  /// Limits of a range of the depth, and bytes of partial sums.
  static constexpr std::int64_t shortest = 128, longest = 2048, max_scratch = 64 << 20;
};

/// A matrix product on a GPU, prepared.
template <class Precision>
class MatrixProduct {
 public:
  using A = typename Precision::activation;

  MatrixProduct() = default;
  /// `source.functions` are the index functions, which know `defines`. `relu`: clamp negative
  /// results to 0. \throws DeviceError if there are too many rows.
  MatrixProduct(CudaContext& context, const Source& source, std::vector<Define> defines,
                const ProductSizes& sizes, bool of_weights, bool relu = false)
      : sizes_(sizes) {
    constexpr std::int64_t most = std::numeric_limits<int>::max() - 4096;
    if (std::max({sizes.rows, sizes.columns, sizes.depth}) > most)
      throw DeviceError(
          "cuda: a matrix product of {} x {} by {} x {} is too large for one launch; use a smaller "
          "batch",
          sizes.rows, sizes.depth, sizes.depth, sizes.columns);
    if (sizes.rows == 0 || sizes.depth == 0) return;
    cut_.choose_tile(sizes, !of_weights);
    cut_.choose_parts(sizes, context.gpu().multiprocessors);
    for (const Define& d :
         {Define("ACTIVATION", activation_code<Precision>), Define("OF_WEIGHTS", of_weights),
          Define("RELU", relu), Define("COLUMNS", sizes.columns),
          Define("PITCH", sizes.pitch > 0 ? sizes.pitch : sizes.columns),
          Define("TILE_ROWS", cut_.tile_rows), Define("TILE_COLUMNS", cut_.tile_columns)})
      defines.push_back(d);
    product_ = context.kernel(source, "product", defines);
    if (cut_.parts > 1) add_ = context.kernel(source, "add_parts", defines);
  }

  /// Whether our product may beat NVIDIA's libraries. They need extra launches, of about 2 us each,
  /// for weights in their own order and type. A product of 2e8 operations takes ours at least 10 us
  /// on an H100, and theirs a third of that; with tensor cores, a tenth or less.
  static constexpr bool may_win(const ProductSizes& s) {
    constexpr bool has_tensor_cores = sizeof(A) == 2 || std::is_same_v<Precision, Tf32>;
    return 2.0 * static_cast<double>(s.rows) * static_cast<double>(s.columns) *
               static_cast<double>(s.depth) <=
           (has_tensor_cores ? 2e7 : 2e8);
  }

  /// Space for partial sums, if the depth is split.
  std::size_t scratch_bytes() const {
    return cut_.parts == 1 ? 0 : static_cast<std::size_t>(cut_.parts) * size() * sizeof(float);
  }

  /// `bias` may be null. Does nothing without rows or depth.
  template <class Right, class Out>
  void operator()(CudaContext& context, const A* left, const Right* right, const float* bias,
                  Out* out, std::byte* scratch) const {
    if (product_ == nullptr) return;
    const auto tiles = [](std::int64_t n, int tile) {
      return static_cast<unsigned>((n + tile - 1) / tile);
    };
    if (tiles(sizes_.columns, cut_.tile_columns) > 65535)
      throw DeviceError(
          "cuda: a matrix product with {} columns exceeds the grid's limit; install cuBLASLt",
          sizes_.columns);
    float* const parts = reinterpret_cast<float*>(scratch);
    context.launch(
        product_,
        Grid{{tiles(sizes_.rows, cut_.tile_rows), tiles(sizes_.columns, cut_.tile_columns),
              static_cast<unsigned>(cut_.parts)},
             {256, 1, 1}},
        left, right, bias, out, parts, static_cast<int>(sizes_.rows),
        static_cast<int>(sizes_.depth), cut_.depth_each);
    if (cut_.parts > 1)
      context.launch(add_, Grid::over(size()), static_cast<const float*>(parts), bias, out,
                     static_cast<std::int64_t>(size()), cut_.parts);
  }

  const ProductCut& cut() const { return cut_; }

 private:
  std::size_t size() const { return static_cast<std::size_t>(sizes_.rows * sizes_.columns); }

  ProductSizes sizes_;
  ProductCut cut_;
  CUfunction product_ = nullptr, add_ = nullptr;
};

}  // namespace lockstep::detail::cuda
