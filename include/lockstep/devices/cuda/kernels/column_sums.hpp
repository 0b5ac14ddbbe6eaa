/// \file
/// Sums over all rows of a matrix: gradients of biases. Invariant: sums are taken in an order that
/// depends on the sizes only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/devices/cuda/context.hpp"

namespace lockstep::detail::cuda {

/// The grid is groups of WIDTH columns x ranges of the rows; a block has WIDTH x (256 / WIDTH)
/// threads.
inline constexpr Source column_sums_source{"column_sums", R"cuda(
KERNEL(column_sums)(const A* __restrict__ x, float* sums, i64 rows, i64 rows_each) {
  __shared__ float part[256];
  const int t = threadIdx.x, n = blockIdx.x * WIDTH + t % WIDTH;
  const i64 begin = blockIdx.y * rows_each, end = min(rows, begin + rows_each);
  float sum = 0;
  if (n < COLUMNS)
    for (i64 m = begin + t / WIDTH; m < end; m += 256 / WIDTH) sum += get(x[m * COLUMNS + n]);
  part[t] = sum;
  __syncthreads();
  if (t >= WIDTH || n >= COLUMNS) return;
  for (int i = t + WIDTH; i < 256; i += WIDTH) sum += part[i];
  sums[(i64)blockIdx.y * COLUMNS + n] = sum;
}
)cuda"};

/// out[i] = sum over p of parts[p, i], one thread each.
inline constexpr Source add_parts_source{"add_parts", R"cuda(
KERNEL(add_parts)(const float* __restrict__ parts, float* out, i64 n, int count) {
  for (i64 i = INDEX; i < n; i += STRIDE) {
    double sum = 0;
    for (int p = 0; p < count; ++p) sum += parts[p * n + i];
    out[i] = (float)sum;
  }
}
)cuda"};

/// Ranges of `rows` such that each of `threads` threads adds up some 256 of a range.
struct RowParts {
  std::int64_t each = 1;
  unsigned parts = 1;
  static constexpr RowParts of(std::int64_t rows, int threads) {
    RowParts r;
    r.each = std::max({rows, std::int64_t{1}});
    r.parts = static_cast<unsigned>(
        std::clamp<std::int64_t>((rows + 256 * threads - 1) / (256 * threads), 1, 1024));
    r.each = (r.each + r.parts - 1) / r.parts;
    return r;
  }
};

/// The least power of two that is at least `columns`, at most 32.
constexpr int block_width(std::int64_t columns) {
  int width = 1;
  while (width < 32 && width < columns) width *= 2;
  return width;
}

/// sums[n] = sum over m of x[m, n], of `rows` x `columns` numbers.
template <class Precision>
class ColumnSums {
 public:
  using A = typename Precision::activation;

  ColumnSums() = default;
  [[gnu::cold]] ColumnSums(CudaContext& context, std::int64_t rows, std::int64_t columns)
      : rows_(rows), columns_(columns), cut_(RowParts::of(rows, 256 / block_width(columns))) {
    sum_ = context.kernel(column_sums_source, "column_sums",
                          {{"ACTIVATION", activation_code<Precision>},
                           {"COLUMNS", columns},
                           {"WIDTH", block_width(columns)}});
    if (cut_.parts > 1) add_ = context.kernel(add_parts_source, "add_parts", {});
  }

  std::size_t scratch_bytes() const {
    return cut_.parts == 1 ? 0 : cut_.parts * static_cast<std::size_t>(columns_) * sizeof(float);
  }

  void operator()(CudaContext& context, const A* x, float* sums, std::byte* scratch) const {
    if (sum_ == nullptr) return;
    float* const parts = cut_.parts == 1 ? sums : reinterpret_cast<float*>(scratch);
    const int width = block_width(columns_);
    context.launch(
        sum_,
        Grid{{static_cast<unsigned>((columns_ + width - 1) / width), cut_.parts, 1}, {256, 1, 1}},
        x, parts, rows_, cut_.each);
    if (cut_.parts > 1)
      context.launch(add_, Grid::over(static_cast<std::size_t>(columns_)),
                     static_cast<const float*>(parts), sums, columns_,
                     static_cast<int>(cut_.parts));
  }

 private:
  std::int64_t rows_ = 0, columns_ = 0;
  RowParts cut_;
  CUfunction sum_ = nullptr, add_ = nullptr;
};

}  // namespace lockstep::detail::cuda
