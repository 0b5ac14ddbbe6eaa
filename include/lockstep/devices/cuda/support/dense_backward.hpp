/// \file
/// All gradients of a dense layer (dw, db, dx) in one launch, for small batches of few units,
/// optionally through a ReLU. Invariants: tiles of both products and the sums for db are
/// independent blocks of one grid; dy is masked where it is read; no sum is split, so its order is
/// fixed.
///
///     blocks:  [ tiles of dw | 32 units of db each | tiles of dx, if wanted ]
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "lockstep/devices/cuda/support/matrix_product.hpp"
#include "lockstep/layers/dense.hpp"

namespace lockstep::detail::cuda {

/// The grid is tiles of dw, then groups of 32 units of db, then tiles of dx, which may be omitted.
inline constexpr Source dense_backward_source{"dense_backward", R"cuda(
// The gradient before the ReLU.
struct Gradient {
  const A* __restrict__ dy;
  const A* __restrict__ y;
  __device__ float at(i64 i) const {
    const float g = get(dy[i]);
    return RELU && get(y[i]) <= 0 ? 0.0f : g;
  }
};
// dw (inputs, units) = x^T (inputs, examples) * gradient (examples, units)
struct OfWeights {
  typedef int Row;
  Gradient gradient;
  const A* __restrict__ x;
  __device__ int row(int input) const { return input; }
  __device__ float left(int input, int n) const { return get(x[(i64)n * INPUTS + input]); }
  __device__ float right(int n, int unit) const { return gradient.at(n * UNITS + unit); }
};
// dx (examples, inputs) = gradient (examples, units) * w^T (units, inputs)
struct OfInput {
  typedef int Row;
  Gradient gradient;
  const float* __restrict__ w;
  __device__ int row(int n) const { return n * UNITS; }
  __device__ float left(int row, int unit) const { return gradient.at(row + unit); }
  __device__ float right(int unit, int input) const { return w[(i64)input * UNITS + unit]; }
};

// Blocks pick their part of the work by their index; see the drawing at the top of the file.
KERNEL(dense_backward)(const A* __restrict__ x, const A* __restrict__ dy, const A* __restrict__ y,
                       const float* __restrict__ w, float* dw, float* db, A* dx, int count) {
  const Gradient gradient = {dy, y};
  int block = blockIdx.x;
  if (block < WEIGHT_TILES) {
    const OfWeights factors = {gradient, x};
    product_tile<WEIGHT_ROWS, WEIGHT_COLUMNS, false, false>(
        factors, block / WEIGHT_ACROSS * WEIGHT_ROWS, block % WEIGHT_ACROSS * WEIGHT_COLUMNS,
        INPUTS, UNITS, 0, count,
        [&](int input, int unit, float sum) { dw[(i64)input * UNITS + unit] = sum; });
    return;
  }
  block -= WEIGHT_TILES;
#if BIAS
  if (block < (UNITS + 31) / 32) {
    __shared__ double part[THREADS];
    const int unit = block * 32 + threadIdx.x % 32, step = THREADS / 32;
    double sum = 0;
    for (int n = threadIdx.x / 32; n < count; n += 8 * step) {
      float few = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (unit < UNITS && n + i * step < count) few += gradient.at((n + i * step) * UNITS + unit);
      sum += few;
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= 32 || unit >= UNITS) return;
    for (int i = threadIdx.x + 32; i < THREADS; i += 32) sum += part[i];
    db[unit] = (float)sum;
    return;
  }
  block -= (UNITS + 31) / 32;
#endif
  const OfInput factors = {gradient, w};
  product_tile<INPUT_ROWS, INPUT_COLUMNS, true, true>(
      factors, block / INPUT_ACROSS * INPUT_ROWS, block % INPUT_ACROSS * INPUT_COLUMNS, count,
      INPUTS, 0, UNITS, [&](int n, int input, float sum) {
        dx[(i64)n * INPUTS + input] = put<A>(sum);
      });
}
)cuda",
                                              product_tile_text};

/// The launch at one batch size.
template <class Precision>
class DenseBackward {
 public:
  using A = typename Precision::activation;

  /// Maximum number of examples and of units, which bounds the length of the sums in both products.
  static constexpr std::int64_t most = 256;
  static constexpr bool fits(const DenseOp& op, std::size_t count) {
    return count > 0 && count <= static_cast<std::size_t>(most) && op.units <= most &&
           op.inputs <= std::numeric_limits<int>::max() / most;
  }

  DenseBackward() = default;
  /// `relu`: dy is the gradient after a ReLU.
  DenseBackward(const DenseOp& op, CudaContext& context, std::size_t count, bool relu)
      : count_(static_cast<int>(count)) {
    const Tiles of_weights(op.inputs, op.units), of_input(count_, op.inputs);
    first_tiles_ = of_weights.count() + (op.bias ? (op.units + 31) / 32 : 0);
    all_tiles_ = first_tiles_ + of_input.count();
    kernel_ = context.kernel(dense_backward_source, "dense_backward",
                             {{"ACTIVATION", activation_code<Precision>},
                              {"INPUTS", op.inputs},
                              {"UNITS", op.units},
                              {"BIAS", op.bias ? 1 : 0},
                              {"RELU", relu ? 1 : 0},
                              {"WEIGHT_TILES", of_weights.count()},
                              {"WEIGHT_ACROSS", of_weights.across},
                              {"WEIGHT_ROWS", of_weights.height},
                              {"WEIGHT_COLUMNS", of_weights.width},
                              {"INPUT_ACROSS", of_input.across},
                              {"INPUT_ROWS", of_input.height},
                              {"INPUT_COLUMNS", of_input.width}});
  }

  /// `y`: the layer's result, needed with a ReLU. `dx` may be null if the gradient is not needed.
  void operator()(CudaContext& context, const A* x, const A* dy, const A* y, const float* w,
                  float* dw, float* db, A* dx) const {
    const int tiles = dx == nullptr ? first_tiles_ : all_tiles_;
    context.launch(kernel_, Grid{{static_cast<unsigned>(tiles), 1, 1}, {256, 1, 1}}, x, dy, y, w,
                   dw, db, dx, count_);
  }

 private:
  /// The tiling of a product. Tiles are narrow only for few columns, so that the compiled kernel
  /// does not depend on the number of examples.
  struct Tiles {
    Tiles(int rows, int columns)
        : width(columns > 32   ? 64
                : columns > 16 ? 32
                               : 16),
          height(4096 / width),
          across((columns + width - 1) / width),
          down((rows + height - 1) / height) {}
    int count() const { return across * down; }
    int width, height, across, down;
  };

  int count_ = 0, first_tiles_ = 0, all_tiles_ = 0;
  CUfunction kernel_ = nullptr;
};

}  // namespace lockstep::detail::cuda
