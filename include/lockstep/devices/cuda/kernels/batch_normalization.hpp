/// \file
/// BatchNormalization on a GPU. Invariants: memory is read once for the statistics and once for the
/// sums of backward; each thread adds eight rows in float, around the first of them, and all that
/// follows in double, in an order that the sizes fix; statistics stay on the GPU, but for
/// `synchronized` in a group of several, whose members exchange them through the host.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/kernels/columns.hpp"
#include "lockstep/devices/host/batch_statistics.hpp"
#include "lockstep/layers/batch_normalization.hpp"

namespace lockstep {

namespace detail::cuda {

/// `once`: number of rows, mean (channels), sum of squared distances from it and later 1 /
/// sqrt(variance + epsilon) (channels), the two sums of backward (channels each). `parts`: the two
/// sums of each block, (2, channels, count).
inline constexpr char batch_normalization_text[] = R"cuda(
#define TILES ((CHANNELS + LANES - 1) / LANES)
#define CHANNEL ((int)(blockIdx.x % TILES) * LANES + LANE)
#define PART ((int)(blockIdx.x / TILES))
#define TALL 8
#define FOR_ROWS(row) \
  for (i64 row = (i64)PART * ROWS + ROW; row < rows; row += (i64)count * ROWS)

__device__ inline void put_part(double* parts, int count, double a, double b) {
  a = column_sum(a);
  b = column_sum(b);
  if (ROW > 0 || CHANNEL >= CHANNELS) return;
  parts[(i64)CHANNEL * count + PART] = a;
  parts[(i64)(CHANNELS + CHANNEL) * count + PART] = b;
}
// Of a channel, by a warp.
__device__ inline double sum_of_parts(const double* parts, int count, int channel) {
  double sum = 0;
#pragma unroll 8
  for (int p = threadIdx.x % 32; p < count; p += 32) sum += parts[(i64)channel * count + p];
  return warp_sum(sum);
}

// Sums of distances from the first row of all, and of their squares.
KERNEL(moments)(const A* __restrict__ x, double* __restrict__ parts, i64 rows, int count) {
  double sum = 0, squares = 0;
  if (CHANNEL < CHANNELS) {
    const double from = get(x[CHANNEL]);
    const i64 step = (i64)count * ROWS * TALL;
    for (i64 row = (i64)PART * ROWS * TALL + ROW; row < rows; row += step) {
      const A* const p = x + row * CHANNELS + CHANNEL;
      if (row + (TALL - 1) * ROWS < rows) {
        float v[TALL], s = 0, q = 0;
        for (int i = 0; i < TALL; ++i) v[i] = get(p[(i64)i * ROWS * CHANNELS]);
        for (int i = 1; i < TALL; ++i) {
          const float d = v[i] - v[0];
          s += d;
          q += d * d;
        }
        const double mean = (double)s / TALL, distance = v[0] - from + mean;
        sum += TALL * distance;
        squares += q - s * mean + TALL * distance * distance;
      } else {
        for (int i = 0; row + i * ROWS < rows; ++i) {
          const double d = get(p[(i64)i * ROWS * CHANNELS]) - from;
          sum += d;
          squares += d * d;
        }
      }
    }
  }
  put_part(parts, count, sum, squares);
}

// From sums of squares to the scale, and the moving statistics.
__device__ inline void settle_channel(double* once, float* state, double momentum, double rows, int k) {
  double* const of_squares = once + 1 + CHANNELS + k;
  const double variance = *of_squares / rows;
  state[k] = (float)(momentum * state[k] + (1 - momentum) * once[1 + k]);
  state[CHANNELS + k] = (float)(momentum * state[CHANNELS + k] + (1 - momentum) * variance);
  *of_squares = 1 / sqrt(variance + EPSILON);
}

// Without state: the moments only, for others to be merged with.
KERNEL(finish)(const A* x, const double* __restrict__ parts, int count, double* once, i64 rows,
               float* state, double momentum) {
  const int k = (int)(INDEX / 32);
  if (k >= CHANNELS) return;
  const double sum = sum_of_parts(parts, count, k);
  const double squares = sum_of_parts(parts + (i64)CHANNELS * count, count, k);
  if (threadIdx.x % 32 > 0) return;
  const double distance = sum / rows, around_mean = squares - distance * sum;
  once[1 + k] = get(x[k]) + distance;
  once[1 + CHANNELS + k] = around_mean < 0 ? 0 : around_mean;
  if (k == 0) once[0] = (double)rows;
  if (state) settle_channel(once, state, momentum, (double)rows, k);
}
KERNEL(settle)(double* once, float* state, double momentum) {
  if (INDEX < CHANNELS) settle_channel(once, state, momentum, once[0], (int)INDEX);
}
// Statistics of a model that does not train.
KERNEL(take)(const float* __restrict__ state, double* __restrict__ once) {
  const int k = (int)INDEX;
  if (k >= CHANNELS) return;
  once[1 + k] = state[k];
  once[1 + CHANNELS + k] = 1 / sqrt((double)state[CHANNELS + k] + EPSILON);
}

// (x - mean) scale of a channel: the mean in two floats, as one has too few digits.
struct Normal {
  float mean, rest, scale;
  __device__ float operator()(float x) const { return (x - mean - rest) * scale; }
};
__device__ inline Normal normal_of(const double* once, int k) {
  Normal n;
  n.mean = (float)once[1 + k];
  n.rest = (float)(once[1 + k] - n.mean);
  n.scale = (float)once[1 + CHANNELS + k];
  return n;
}

KERNEL(normalize)(const A* __restrict__ x, A* __restrict__ y, const float* __restrict__ w,
                  const double* __restrict__ once, i64 rows, int count) {
  if (CHANNEL >= CHANNELS) return;
  const Normal normal = normal_of(once, CHANNEL);
  const float gamma = SCALE ? w[CHANNEL] : 1.0f;
  const float beta = CENTER ? w[SCALE * CHANNELS + CHANNEL] : 0.0f;
#pragma unroll 4
  FOR_ROWS(row) {
    const i64 i = row * CHANNELS + CHANNEL;
    y[i] = put<A>(normal(get(x[i])) * gamma + beta);
  }
}

// Sums of dy, and of dy (x - mean) scale.
KERNEL(sums)(const A* __restrict__ x, const A* __restrict__ dy, const double* __restrict__ once,
             double* __restrict__ parts, i64 rows, int count) {
  double of_dy = 0, of_products = 0;
  if (CHANNEL < CHANNELS) {
    const Normal normal = normal_of(once, CHANNEL);
    const i64 step = (i64)count * ROWS * TALL;
    for (i64 row = (i64)PART * ROWS * TALL + ROW; row < rows; row += step) {
      float s = 0, q = 0;
#pragma unroll
      for (int i = 0; i < TALL; ++i) {
        if (row + i * ROWS >= rows) break;
        const i64 at = (row + i * ROWS) * CHANNELS + CHANNEL;
        const float g = get(dy[at]);
        s += g;
        q += g * normal(get(x[at]));
      }
      of_dy += s;
      of_products += q;
    }
  }
  put_part(parts, count, of_dy, of_products);
}
KERNEL(finish_sums)(const double* __restrict__ parts, int count, double* once, float* dw) {
  const int k = (int)(INDEX / 32);
  if (k >= CHANNELS) return;
  const double of_dy = sum_of_parts(parts, count, k);
  const double of_products = sum_of_parts(parts + (i64)CHANNELS * count, count, k);
  if (threadIdx.x % 32 > 0) return;
  once[1 + 2 * CHANNELS + k] = of_dy;
  once[1 + 3 * CHANNELS + k] = of_products;
  if (SCALE) dw[k] = (float)of_products;
  if (CENTER) dw[SCALE * CHANNELS + k] = (float)of_dy;
}

KERNEL(gradient)(const A* __restrict__ x, const A* __restrict__ dy, A* __restrict__ dx,
                 const float* __restrict__ w, const double* __restrict__ once, i64 rows,
                 int count) {
  if (CHANNEL >= CHANNELS) return;
  const Normal normal = normal_of(once, CHANNEL);
  const float of_dy = (float)(once[1 + 2 * CHANNELS + CHANNEL] / once[0]);
  const float of_products = (float)(once[1 + 3 * CHANNELS + CHANNEL] / once[0]);
  const float factor = SCALE ? w[CHANNEL] * normal.scale : normal.scale;
#pragma unroll 4
  FOR_ROWS(row) {
    const i64 i = row * CHANNELS + CHANNEL;
    dx[i] = put<A>(factor * (get(dy[i]) - of_dy - normal(get(x[i])) * of_products));
  }
}
)cuda";

}  // namespace detail::cuda

template <class Precision>
struct Kernel<BatchNormalizationOp, BasicCuda<Precision>> : KernelTraits {
  using D = BasicCuda<Precision>;
  using Op = BatchNormalizationOp;
  static constexpr bool keeps_x = true, knows_again = true;
  static constexpr bool exchanges(const Op& op) { return op.synchronized; }
  static constexpr bool updates_state(const Op&) { return true; }
  static constexpr std::size_t saved_once(const Op& op) {
    return (1 + 4 * op.channels()) * sizeof(double);
  }

  /// How blocks lie over the rows, and room for an exchange.
  struct Prepared {
    Prepared(const Op& op, std::size_t examples)
        : columns(op.channels()), rows(static_cast<std::int64_t>(examples * op.rows())) {
      const std::size_t at_a_time = columns.rows() * 8,
                        most = std::max<std::size_t>(512 / columns.tiles(), 1);
      parts = static_cast<int>(
          std::clamp<std::size_t>((examples * op.rows() + at_a_time - 1) / at_a_time, 1, most));
    }
    std::size_t scratch_bytes() const {
      return 2 * columns.channels * static_cast<std::size_t>(parts) * sizeof(double);
    }
    detail::cuda::Columns columns;
    std::int64_t rows;
    int parts = 1;
    std::vector<double> moments, replicas;  // the host's, of an exchange
  };
  static Prepared prepare(const Op& op, typename D::Context&, std::size_t count) {
    return {op, count};
  }

  [[gnu::noinline]] static void forward(const Op& op, const Io<D>& io, Prepared& p) {
    double* const once = reinterpret_cast<double*>(io.once);
    if (io.step.training && !io.step.again) {
      if (!find_statistics(op, io, p, once)) return;
    } else if (!io.step.again) {
      launch(op, io, "take", over_channels(op), io.state, once);
    }
    if (io.count > 0)
      launch(op, io, "normalize", over_rows(p), io.x, io.y, io.w, once, p.rows, p.parts);
  }

  [[gnu::noinline]] static void backward(const Op& op, const Io<D>& io, Prepared& p) {
    const std::size_t channels = op.channels();
    double* const once = reinterpret_cast<double*>(io.once);
    double* const sums = once + 1 + 2 * channels;  // (2, channels)
    if (io.count > 0) {
      double* const parts = reinterpret_cast<double*>(io.scratch);
      launch(op, io, "sums", over_rows(p), io.x, io.dy, once, parts, p.rows, p.parts);
      launch(op, io, "finish_sums", over_warps(op), parts, p.parts, once, io.dw);
    } else {
      const std::size_t tensors = std::size_t(op.scale) + std::size_t(op.center);
      io.device.clear(reinterpret_cast<std::byte*>(io.dw),
                      tensors * channels * sizeof(typename D::real));
    }
    if (io.dx == nullptr) return;
    if (op.synchronized && io.step.group.size() > 1) {
      p.moments.assign(2 * channels, 0.0);
      if (io.count > 0) download(io, p.moments, sums);
      io.step.group.all_reduce(p.moments.data(), 2 * channels);
      upload(io, sums, p.moments);
    }
    if (io.count > 0)
      launch(op, io, "gradient", over_rows(p), io.x, io.dy, io.dx, io.w, once, p.rows, p.parts);
  }

 private:
  static constexpr detail::cuda::Source source{"batch_normalization",
                                               detail::cuda::batch_normalization_text,
                                               detail::cuda::columns_functions};

  /// False: there are no examples, here or anywhere in the group.
  static bool find_statistics(const Op& op, const Io<D>& io, Prepared& p, double* once) {
    const bool shared = op.synchronized && io.step.group.size() > 1;
    if (io.count > 0) {
      double* const parts = reinterpret_cast<double*>(io.scratch);
      launch(op, io, "moments", over_rows(p), io.x, parts, p.rows, p.parts);
      launch(op, io, "finish", over_warps(op), io.x, parts, p.parts, once, p.rows,
             shared ? nullptr : io.state, op.momentum);
    }
    if (!shared) return io.count > 0;
    p.moments.assign(detail::moments_size(op.channels()), 0.0);
    if (io.count > 0) download(io, p.moments, once);
    detail::merge_over_replicas(io.step.group, p.moments.data(), op.channels(), p.replicas);
    if (p.moments[0] == 0) return false;
    upload(io, once, p.moments);
    launch(op, io, "settle", over_channels(op), once, io.state, op.momentum);
    return true;
  }

  static void download(const Io<D>& io, std::vector<double>& to, const double* from) {
    io.device.download(reinterpret_cast<std::byte*>(to.data()),
                       reinterpret_cast<const std::byte*>(from), to.size() * sizeof(double));
    io.device.synchronize();
  }
  static void upload(const Io<D>& io, double* to, const std::vector<double>& from) {
    io.device.upload(reinterpret_cast<std::byte*>(to),
                     reinterpret_cast<const std::byte*>(from.data()), from.size() * sizeof(double));
  }

  static detail::cuda::Grid over_rows(const Prepared& p) {
    const std::size_t blocks = p.columns.tiles() * static_cast<std::size_t>(p.parts);
    return {{static_cast<unsigned>(blocks), 1, 1}, {detail::cuda::Columns::threads, 1, 1}};
  }
  static detail::cuda::Grid over_warps(const Op& op) {
    return detail::cuda::Grid::over(32 * op.channels());
  }
  static detail::cuda::Grid over_channels(const Op& op) {
    return detail::cuda::Grid::over(op.channels(), 32);
  }

  template <class... Ts>
  static void launch(const Op& op, const Io<D>& io, const char* entry,
                     const detail::cuda::Grid& grid, const Ts&... arguments) {
    using detail::cuda::Define;
    const auto defines = detail::cuda::with_activation<Precision>(
        std::array{Define("LANES", detail::cuda::Columns(op.channels()).lanes),
                   Define("CHANNELS", op.channels()), Define("EPSILON", op.epsilon),
                   Define("CENTER", op.center), Define("SCALE", op.scale)});
    io.device.launch(io.device.kernel(source, entry, defines), grid, arguments...);
  }
};

static_assert(HasKernel<BatchNormalizationOp, Cuda>);

}  // namespace lockstep
