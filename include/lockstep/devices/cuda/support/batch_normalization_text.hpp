/// \file
/// The kernels of ops/batch_normalization.hpp.
#pragma once

namespace lockstep::detail::cuda {

/// Layout of `once`, in doubles, for C channels; `parts` has two sums per block, (2, channels,
/// count).
///
///     [0]            number of rows
///     [1, C]         mean
///     [1 + C, C]     sum of squared deviations, later 1 / sqrt(variance + epsilon)
///     [1 + 2C, C]    backward: sum of dy
///     [1 + 3C, C]    backward: sum of dy * normalized x
inline constexpr char batch_normalization_text[] = R"cuda(
__device__ inline double scale_of(double variance) { return 1 / sqrt(variance + EPSILON); }

// Converts the moments of a channel to its scale and updates the running statistics.
__device__ inline void write_statistics(double* once, float* state, double momentum, double rows,
                                        double mean, double squares, int k) {
  const double variance = squares / rows;
  state[k] = (float)(momentum * state[k] + (1 - momentum) * mean);
  state[CHANNELS + k] = (float)(momentum * state[CHANNELS + k] + (1 - momentum) * variance);
  if (k == 0) once[0] = rows;
  once[1 + k] = mean;
  once[1 + CHANNELS + k] = scale_of(variance);
}

// Sums of x and x^2, shifted by the first row to avoid cancellation. Without state only the moments
// are written, to be merged with those of other members.
KERNEL(moments)(const A* __restrict__ x, double* parts, i64 rows, int count, double* once,
                float* state, double momentum, Sums* workspace) {
  double sum = 0, squares = 0;
  if (CHANNEL < CHANNELS) {
    const double from = get(x[CHANNEL]);
    FOR_TALL_ROWS(row) {
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
  sums_of_parts(parts, count, workspace, [&](int k, double all, double of_squares) {
    const double distance = all / rows, mean = get(x[k]) + distance;
    double around = of_squares - distance * all;
    if (around < 0) around = 0;
    if (state) {
      write_statistics(once, state, momentum, (double)rows, mean, around, k);
    } else {
      if (k == 0) once[0] = (double)rows;
      once[1 + k] = mean;
      once[1 + CHANNELS + k] = around;
    }
  });
}

// Merges the moments of all members, (members, 1 + 2 channels), as merge_moments in
// devices/host/batch_statistics.hpp (Chan et al.).
KERNEL(merge)(const double* __restrict__ all, int members, double* once, float* state,
              double momentum) {
  const int k = (int)INDEX;
  if (k >= CHANNELS) return;
  double rows = 0, mean = 0, squares = 0;
  for (int r = 0; r < members; ++r) {
    const double* const part = all + (i64)r * (1 + 2 * CHANNELS);
    if (part[0] == 0) continue;
    const double share = part[0] / (rows + part[0]), distance = part[1 + k] - mean;
    squares += part[1 + CHANNELS + k] + distance * distance * (rows * share);
    mean += distance * share;
    rows += part[0];
  }
  if (rows > 0) write_statistics(once, state, momentum, rows, mean, squares, k);
}
// Inference: running statistics instead of batch statistics. `gradient` divides by once[0].
KERNEL(load_statistics)(const float* __restrict__ state, double* __restrict__ once) {
  const int k = (int)INDEX;
  if (k >= CHANNELS) return;
  if (k == 0) once[0] = 1;
  once[1 + k] = state[k];
  once[1 + CHANNELS + k] = scale_of(state[CHANNELS + k]);
}

// y = (x - mean) * scale * gamma + beta of a channel. The mean takes two floats, because one has
// too few digits. Every rounding is explicit, so that backward recomputes the same sign as forward.
struct Line {
  float mean, rest, scale, gamma, beta;
  __device__ float normal(float x) const { return __fmul_rn(x - mean - rest, scale); }
  __device__ float operator()(float x) const { return fmaf(normal(x), gamma, beta); }
};
__device__ inline Line line_of(const double* once, const float* w, int k) {
  const double mean = once[1 + k];
  Line line;
  line.mean = (float)mean;
  line.rest = (float)(mean - line.mean);
  line.scale = (float)once[1 + CHANNELS + k];
  line.gamma = SCALE ? w[k] : 1.0f;
  line.beta = CENTER ? w[SCALE * CHANNELS + k] : 0.0f;
  return line;
}

// TAIL 1: ReLU; TAIL 2: add x2, then ReLU.
KERNEL(normalize)(const A* __restrict__ x, const A* __restrict__ x2, A* __restrict__ y,
                  const float* __restrict__ w, const double* __restrict__ once, i64 rows,
                  int count) {
  if (CHANNEL >= CHANNELS) return;
  const Line line = line_of(once, w, CHANNEL);
  FOR_TALL_ROWS(first)
    tall_rows(first, rows, [&](i64 row) {
      const i64 i = row * CHANNELS + CHANNEL;
      float v = line(get(x[i]));
      if (TAIL == 2) v += get(x2[i]);
      if (TAIL > 0 && v < 0) v = 0;
      y[i] = put<A>(v);
    });
}

// dy where the result was positive, else 0.
__device__ inline float masked(const Line& line, float x, const A* y, float dy) {
  if (TAIL == 1) return line(x) <= 0 ? 0.0f : dy;
  if (TAIL == 2) return get(*y) <= 0 ? 0.0f : dy;
  return dy;
}

// Sums of dy, and of dy * normalized x. Keeps the masked dy in dx2, unless that is null.
KERNEL(sums)(const A* __restrict__ x, const A* __restrict__ y, const A* __restrict__ dy,
             A* __restrict__ dx2, const float* __restrict__ w, double* once, float* dw,
             double* parts, i64 rows, int count, Sums* workspace) {
  double of_dy = 0, of_products = 0;
  if (CHANNEL < CHANNELS) {
    const Line line = line_of(once, w, CHANNEL);
    const auto add_rows = [&](bool keeps) {
      FOR_TALL_ROWS(first) {
        float s = 0, q = 0;
        tall_rows(first, rows, [&](i64 row) {
          const i64 i = row * CHANNELS + CHANNEL;
          const float v = get(x[i]), g = masked(line, v, y + i, get(dy[i]));
          if (keeps) dx2[i] = put<A>(g);
          s += g;
          q += g * line.normal(v);
        });
        of_dy += s;
        of_products += q;
      }
    };
    if (TAIL == 2 && dx2)
      add_rows(true);
    else
      add_rows(false);
  }
  put_part(parts, count, of_dy, of_products);
  sums_of_parts(parts, count, workspace, [&](int k, double all_dy, double all_products) {
    once[1 + 2 * CHANNELS + k] = all_dy;
    once[1 + 3 * CHANNELS + k] = all_products;
    if (!dw) return;
    if (SCALE) dw[k] = (float)all_products;
    if (CENTER) dw[SCALE * CHANNELS + k] = (float)all_dy;
  });
}

// dx = gamma * scale * (dy - mean(dy) - normalized x * mean(dy * normalized x)). `done`: dy is
// already masked; only with TAIL 2.
KERNEL(gradient)(const A* __restrict__ x, const A* __restrict__ y, const A* __restrict__ dy,
                 A* __restrict__ dx, const float* __restrict__ w, const double* __restrict__ once,
                 i64 rows, int count, int done) {
  if (CHANNEL >= CHANNELS) return;
  const Line line = line_of(once, w, CHANNEL);
  const float of_dy = (float)(once[1 + 2 * CHANNELS + CHANNEL] / once[0]);
  const float of_products = (float)(once[1 + 3 * CHANNELS + CHANNEL] / once[0]);
  const float factor = line.gamma * line.scale;
  const auto put_rows = [&](bool masks) {
    FOR_TALL_ROWS(first)
      tall_rows(first, rows, [&](i64 row) {
        const i64 i = row * CHANNELS + CHANNEL;
        const float v = get(x[i]), g = get(dy[i]);
        const float mine = masks ? masked(line, v, y + i, g) : g;
        dx[i] = put<A>(factor * (mine - of_dy - line.normal(v) * of_products));
      });
  };
  if (TAIL == 2 && done)
    put_rows(false);
  else
    put_rows(true);
}
)cuda";

}  // namespace lockstep::detail::cuda
