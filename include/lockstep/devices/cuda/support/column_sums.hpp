/// \file
/// Column sums of a matrix: bias gradients, optionally through a ReLU. Invariant: the order of a
/// sum depends only on the sizes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/devices/cuda/context.hpp"
#include "lockstep/devices/cuda/support/sums.hpp"

namespace lockstep::detail::cuda {

/// The grid is groups of WIDTH columns x ranges of rows; a block has WIDTH x (256 / WIDTH) threads.
/// With `adds`, the last block of a group to arrive adds up the ranges; otherwise `add_parts` does.
/// With MASKED, x is first set to 0 where y is not positive.
///
///                 columns ->   group 0   group 1
///       rows   range 0         block     block     parts[0, :]
///        |     range 1         block     block     parts[1, :]   -> sums[:]
///        v     range 2         block     block     parts[2, :]
inline constexpr Source column_sums_source{"column_sums", R"cuda(
#if MASKED
typedef A X;
#else
typedef const A X;
#endif

// Sum of rows begin to end; all threads of the block call it, threads below WIDTH get the result.
// Groups of 8 terms are summed in float, the groups in double.
template <class At>
__device__ inline double sum_of_rows(i64 begin, i64 end, const At& at) {
  __shared__ double part[256];
  const int t = threadIdx.x, step = 256 / WIDTH;
  double sum = 0;
  for (i64 m = begin + t / WIDTH; m < end; m += 8 * step) {
    float few = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (m + i * step < end) few += at(m + i * step);
    sum += few;
  }
  __syncthreads();
  part[t] = sum;
  __syncthreads();
  if (t < WIDTH)
    for (int i = t + WIDTH; i < 256; i += WIDTH) sum += part[i];
  return sum;
}

KERNEL(column_sums)(X* __restrict__ x, const A* __restrict__ y, float* parts, float* sums,
                    Sums* workspace, i64 rows, i64 rows_each, int adds) {
  const int t = threadIdx.x, n = blockIdx.x * WIDTH + t % WIDTH;
  const i64 begin = blockIdx.y * rows_each, end = min(rows, begin + rows_each);
  const float sum = (float)sum_of_rows(begin, n < COLUMNS ? end : begin, [&](i64 m) {
    const i64 i = m * COLUMNS + n;
#if MASKED
    const float v = get(y[i]) <= 0 ? 0.0f : get(x[i]);
    x[i] = put<A>(v);
    return v;
#else
    return get(x[i]);
#endif
  });
  if (t < WIDTH && n < COLUMNS) parts[(i64)blockIdx.y * COLUMNS + n] = sum;
  if (!adds || !last_to_arrive(workspace, gridDim.y, blockIdx.x)) return;
  const float* const all = parts;
  const double whole =
      sum_of_rows(0, n < COLUMNS ? gridDim.y : 0, [&](i64 p) { return all[p * COLUMNS + n]; });
  if (t < WIDTH && n < COLUMNS) sums[n] = (float)whole;
}
)cuda"};

/// out[i] = sum over p of parts[p, i], one thread per i.
inline constexpr Source add_parts_source{"add_parts", R"cuda(
KERNEL(add_parts)(const float* __restrict__ parts, float* out, i64 n, int count) {
  FOR_EACH(i, n) {
    double sum = 0;
    for (int p = 0; p < count; ++p) sum += parts[p * n + i];
    out[i] = (float)sum;
  }
}
)cuda"};

/// Cuts `rows` into ranges in which each of `threads` threads adds up about `tall` rows.
struct RowParts {
  std::int64_t each = 1;
  unsigned parts = 1;
  static constexpr RowParts of(std::int64_t rows, int threads, int tall = 256) {
    RowParts r;
    r.each = std::max({rows, std::int64_t{1}});
    r.parts = static_cast<unsigned>(
        std::clamp<std::int64_t>((rows + tall * threads - 1) / (tall * threads), 1, 1024));
    r.each = (r.each + r.parts - 1) / r.parts;
    return r;
  }
};

/// The smallest power of two that is at least `columns`, at most 32.
constexpr int block_width(std::int64_t columns) {
  int width = 1;
  while (width < 32 && width < columns) width *= 2;
  return width;
}

/// How the column sums of a rows x columns matrix are cut into ranges, and the number of launches.
struct ColumnCut : RowParts {
  constexpr ColumnCut() = default;
  constexpr ColumnCut(std::int64_t rows, std::int64_t columns)
      : RowParts(of(rows, 256 / block_width(columns), 64)),
        launches(parts > 1 && columns > max_columns ? 2 : 1) {}
  int launches = 1;

 private:
  static constexpr std::int64_t max_columns = 32 * std::int64_t{SumWorkspace::groups};
};

/// sums[n] = sum over m of x[m, n], for a rows x columns matrix.
template <class Precision>
class ColumnSums {
 public:
  using A = typename Precision::activation;

  ColumnSums() = default;
  /// `masked`: for calls of `mask`.
  ColumnSums(CudaContext& context, std::int64_t rows, std::int64_t columns, bool masked = false)
      : rows_(rows), columns_(columns), cut_(rows, columns) {
    sum_ = context.kernel(column_sums_source, "column_sums",
                          {{"ACTIVATION", activation_code<Precision>},
                           {"COLUMNS", columns},
                           {"WIDTH", block_width(columns)},
                           {"MASKED", masked ? 1 : 0}});
    if (cut_.launches > 1) add_ = context.kernel(add_parts_source, "add_parts", {});
  }

  /// Space for the partial sums of all ranges.
  std::size_t scratch_bytes() const {
    return cut_.parts == 1 ? 0 : cut_.parts * static_cast<std::size_t>(columns_) * sizeof(float);
  }

  /// Enqueues the sums, without a mask.
  void operator()(CudaContext& context, const A* x, float* sums, std::byte* scratch) const {
    run(context, x, nullptr, sums, scratch);
  }
  /// x = x where y is positive, else 0; sums[n] = sum over m of the new x[m, n].
  void mask(CudaContext& context, A* x, const A* y, float* sums, std::byte* scratch) const {
    run(context, x, y, sums, scratch);
  }

 private:
  template <class X>
  void run(CudaContext& context, X* x, const A* y, float* sums, std::byte* scratch) const {
    if (sum_ == nullptr) return;
    float* const parts = cut_.parts == 1 ? sums : reinterpret_cast<float*>(scratch);
    const int width = block_width(columns_);
    context.launch(
        sum_,
        Grid{{static_cast<unsigned>((columns_ + width - 1) / width), cut_.parts, 1}, {256, 1, 1}},
        x, y, parts, sums, context.handle<SumWorkspace>().get(), rows_, cut_.each,
        cut_.parts > 1 && cut_.launches == 1 ? 1 : 0);
    if (cut_.launches > 1)
      context.launch(add_, Grid::over(static_cast<std::size_t>(columns_)),
                     static_cast<const float*>(parts), sums, columns_,
                     static_cast<int>(cut_.parts));
  }

  std::int64_t rows_ = 0, columns_ = 0;
  ColumnCut cut_;
  CUfunction sum_ = nullptr, add_ = nullptr;
};

}  // namespace lockstep::detail::cuda
