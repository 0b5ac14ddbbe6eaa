/// \file
/// LayerNormalization on a GPU. Invariants: deviations are squared after subtracting the mean, to
/// avoid cancellation; gradients of gamma and beta are two-stage sums, whose order depends only on
/// the sizes.
///
///     y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, per row
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/columns.hpp"
#include "lockstep/devices/cuda/support/last_axis.hpp"
#include "lockstep/devices/cuda/support/sums.hpp"
#include "lockstep/layers/normalization/layer_normalization.hpp"

namespace lockstep {

namespace detail::cuda {

/// `saved`: per row, the mean and 1 / sqrt(variance + epsilon).
inline constexpr char layer_normalization_text[] = R"cuda(
// Three passes over the row: mean, variance, result. Sums start from the first element, so that a
// large common offset does not cost digits.
KERNEL(forward)(const A* __restrict__ x, A* __restrict__ y, const float* __restrict__ w,
                double* __restrict__ saved, i64 rows) {
  FOR_EACH_ROW(row) {
    const A* const from = x + row * WIDTH;
    A* const to = y + row * WIDTH;
    const float first = get(from[0]);
    Part part = 0;
    FOR_MINE(k) part += get(from[k]) - first;
    const double mean = first + row_sum((double)part) / WIDTH;
    // Two floats, because one has too few digits.
    const float high = (float)mean, low = (float)(mean - high);
    Part squares = 0;
    FOR_MINE(k) {
      const float d = get(from[k]) - high - low;
      squares += d * d;
    }
    const double scale = 1 / sqrt(row_sum((double)squares) / WIDTH + EPSILON);
    if (MEMBER == 0) {
      saved[2 * row] = mean;
      saved[2 * row + 1] = scale;
    }
    FOR_MINE(k) {
      const float normal = (get(from[k]) - high - low) * (float)scale;
      to[k] = put<A>(normal * (SCALE ? w[k] : 1.0f) + (CENTER ? w[SCALE * WIDTH + k] : 0.0f));
    }
  }
}
// With g = dy * gamma and the normalized x: dx = scale * (g - mean(g) - normal * mean(g * normal)).
KERNEL(backward)(const A* __restrict__ x, const A* __restrict__ dy, A* __restrict__ dx,
                 const float* __restrict__ w, const double* __restrict__ saved, i64 rows) {
  FOR_EACH_ROW(row) {
    const A* const from = x + row * WIDTH;
    const A* const slope = dy + row * WIDTH;
    A* const to = dx + row * WIDTH;
    const float high = (float)saved[2 * row], low = (float)(saved[2 * row] - high);
    const float scale = (float)saved[2 * row + 1];
    Part sum = 0, products = 0;
    FOR_MINE(k) {
      const float g = get(slope[k]) * (SCALE ? w[k] : 1.0f);
      sum += g;
      products += g * ((get(from[k]) - high - low) * scale);
    }
    const float mean = (float)(row_sum((double)sum) / WIDTH);
    const float of_products = (float)(row_sum((double)products) / WIDTH);
    FOR_MINE(k) {
      const float g = get(slope[k]) * (SCALE ? w[k] : 1.0f);
      const float normal = (get(from[k]) - high - low) * scale;
      to[k] = put<A>(scale * (g - mean - normal * of_products));
    }
  }
}
)cuda";

/// A separate text, because it maps threads to columns instead of rows.
inline constexpr char layer_normalization_sums_text[] = R"cuda(
// Gradients of gamma and beta: column sums of dy * normal, and of dy.
KERNEL(sums)(const A* __restrict__ x, const A* __restrict__ dy, const double* __restrict__ saved,
             double* parts, float* dw, i64 rows, int count, Sums* workspace) {
  double of_products = 0, of_dy = 0;
  if (CHANNEL < CHANNELS) {
    FOR_TALL_ROWS(first) {
      float s = 0, q = 0;
      tall_rows(first, rows, [&](i64 row) {
        const i64 i = row * CHANNELS + CHANNEL;
        const float g = get(dy[i]), v = get(x[i]);
        s += g;
        q += g * (float)((v - saved[2 * row]) * saved[2 * row + 1]);
      });
      of_dy += s;
      of_products += q;
    }
  }
  put_part(parts, count, of_products, of_dy);
  sums_of_parts(parts, count, workspace, [&](int k, double all_products, double all_dy) {
    if (SCALE) dw[k] = (float)all_products;
    if (CENTER) dw[SCALE * CHANNELS + k] = (float)all_dy;
  });
}
)cuda";

}  // namespace detail::cuda

/// Keeps x; saves the statistics of each row.
template <class Precision>
struct Kernel<LayerNormalizationOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  using Op = LayerNormalizationOp;
  static constexpr bool keeps_x = true, skips_dw = true;
  static constexpr std::size_t saved(const Op& op) { return 2 * op.rows() * sizeof(double); }

  /// How the column sums are divided among blocks.
  struct Prepared {
    detail::cuda::Columns columns;
    int parts;
    std::size_t scratch_bytes() const { return columns.scratch_bytes(parts); }
  };
  static Prepared prepare(const Op& op, typename D::Context&, std::size_t count) {
    const detail::cuda::Columns columns(op.channels());
    return {columns, columns.parts(count * op.rows())};
  }

  /// Saves two doubles per row.
  static void forward(const Op& op, const Io<D>& io, Prepared&) {
    if (io.step.count == 0) return;
    const auto rows = static_cast<std::int64_t>(io.step.count * op.rows());
    io.device.launch(of_rows(op, io, "forward"), grid(op, io), io.x[0], io.y, io.w,
                     reinterpret_cast<double*>(io.saved), rows);
  }
  /// One launch for the gradients of gamma and beta, one for dx. Without examples dw is cleared.
  static void backward(const Op& op, const Io<D>& io, Prepared& p) {
    const std::size_t tensors = std::size_t(op.scale) + std::size_t(op.center);
    if (io.step.count == 0) {
      if (io.dw != nullptr)
        io.device.clear(reinterpret_cast<std::byte*>(io.dw),
                        tensors * op.channels() * sizeof(typename D::real));
      return;
    }
    const auto rows = static_cast<std::int64_t>(io.step.count * op.rows());
    const double* const saved = reinterpret_cast<const double*>(io.saved);
    double* const parts = reinterpret_cast<double*>(io.scratch);
    if (tensors > 0 && io.dw != nullptr)
      io.device.launch(of_columns(op, io, "sums"), p.columns.grid(p.parts), io.x[0], io.dy, saved,
                       parts, io.dw, rows, p.parts,
                       io.device.template handle<detail::cuda::SumWorkspace>().get());
    if (io.dx[0] != nullptr)
      io.device.launch(of_rows(op, io, "backward"), grid(op, io), io.x[0], io.dy, io.dx[0], io.w,
                       saved, rows);
  }

 private:
  static constexpr detail::cuda::Source rows_source{
      "layer_normalization", detail::cuda::layer_normalization_text, detail::cuda::rows_functions},
      columns_source{"layer_normalization_sums", detail::cuda::layer_normalization_sums_text,
                     detail::cuda::columns_functions};

  static detail::cuda::Grid grid(const Op& op, const Io<D>& io) {
    return detail::cuda::Rows(op.channels()).grid(io.step.count * op.rows());
  }
  /// The row kernels, one team of threads per row.
  static CUfunction of_rows(const Op& op, const Io<D>& io, const char* entry) {
    using detail::cuda::Define;
    const auto defines = detail::cuda::with_activation<Precision>(std::array{
        Define("WIDTH", op.channels()), Define("TEAM", detail::cuda::Rows(op.channels()).team),
        Define("EPSILON", op.epsilon), Define("SCALE", op.scale), Define("CENTER", op.center)});
    return io.device.kernel(rows_source, entry, defines);
  }
  /// The column kernel, one thread per channel.
  static CUfunction of_columns(const Op& op, const Io<D>& io, const char* entry) {
    using detail::cuda::Define;
    const auto defines = detail::cuda::with_activation<Precision>(
        std::array{Define("CHANNELS", op.channels()),
                   Define("LANES", detail::cuda::Columns(op.channels()).lanes),
                   Define("SCALE", op.scale), Define("CENTER", op.center)});
    return io.device.kernel(columns_source, entry, defines);
  }
};

static_assert(HasKernel<LayerNormalizationOp, Cuda>);

}  // namespace lockstep
