/// \file
/// Normalization of the blocks of an example (layers/normalization/normalized_blocks.hpp) on a GPU:
/// the kernels of LayerNormalization, RMSNormalization and GroupNormalization. Invariants:
/// deviations are squared after subtracting the mean, to avoid cancellation; gradients of gamma and
/// beta are two-stage sums, whose order depends only on the sizes.
///
///     y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, per block
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/columns.hpp"
#include "lockstep/devices/cuda/support/last_axis.hpp"
#include "lockstep/devices/cuda/support/sums.hpp"
#include "lockstep/layers/normalization/normalized_blocks.hpp"

namespace lockstep::detail::cuda {

/// `saved`: per block, the mean and 1 / sqrt(variance + epsilon). A "row" of last_axis.hpp is a
/// block.
inline constexpr char block_normalization_text[] = R"cuda(
#define BLOCK_BEGIN(b) \
  ((b) / SIDE_BY_SIDE * (i64)((i64)WIDTH * SIDE_BY_SIDE) + (b) % SIDE_BY_SIDE * BLOCK_CHANNELS)
// Where element k of a block is, from the block's first one.
#if WIDTH == BLOCK_CHANNELS
#define AT(k) (k)
#define CHANNEL_OF(k) (first_channel + (k))
#else
#define AT(k) ((i64)((k) / BLOCK_CHANNELS) * (SIDE_BY_SIDE * BLOCK_CHANNELS) + (k) % BLOCK_CHANNELS)
#define CHANNEL_OF(k) (first_channel + (k) % BLOCK_CHANNELS)
#endif

// Three passes over the block: mean, variance, result. Sums start from the first element, so that a
// large common offset does not cost digits.
KERNEL(forward)(const A* __restrict__ x, A* __restrict__ y, const float* __restrict__ w,
                double* __restrict__ saved, i64 rows) {
  FOR_EACH_ROW(row) {
    const A* const from = x + BLOCK_BEGIN(row);
    A* const to = y + BLOCK_BEGIN(row);
    const int first_channel = (int)(row % SIDE_BY_SIDE) * BLOCK_CHANNELS;
    double mean = 0;
    if (CENTERED) {
      const float first = get(from[0]);
      Part part = 0;
      FOR_MINE(k) part += get(from[AT(k)]) - first;
      mean = first + row_sum((double)part) / WIDTH;
    }
    // Two floats, because one has too few digits.
    const float high = (float)mean, low = (float)(mean - high);
    Part squares = 0;
    FOR_MINE(k) {
      const float d = get(from[AT(k)]) - high - low;
      squares += d * d;
    }
    const double scale = 1 / sqrt(row_sum((double)squares) / WIDTH + EPSILON);
    if (MEMBER == 0) {
      saved[2 * row] = mean;
      saved[2 * row + 1] = scale;
    }
    FOR_MINE(k) {
      const float normal = (get(from[AT(k)]) - high - low) * (float)scale;
      to[AT(k)] = put<A>(normal * (SCALE ? w[CHANNEL_OF(k)] : 1.0f) +
                         (CENTER ? w[SCALE * SIDE_BY_SIDE * BLOCK_CHANNELS + CHANNEL_OF(k)] : 0.0f));
    }
  }
}
// With g = dy * gamma and the normalized x: dx = scale * (g - mean(g) - normal * mean(g * normal)).
KERNEL(backward)(const A* __restrict__ x, const A* __restrict__ dy, A* __restrict__ dx,
                 const float* __restrict__ w, const double* __restrict__ saved, i64 rows) {
  FOR_EACH_ROW(row) {
    const A* const from = x + BLOCK_BEGIN(row);
    const A* const slope = dy + BLOCK_BEGIN(row);
    A* const to = dx + BLOCK_BEGIN(row);
    const int first_channel = (int)(row % SIDE_BY_SIDE) * BLOCK_CHANNELS;
    const float high = (float)saved[2 * row], low = (float)(saved[2 * row] - high);
    const float scale = (float)saved[2 * row + 1];
    Part sum = 0, products = 0;
    FOR_MINE(k) {
      const float g = get(slope[AT(k)]) * (SCALE ? w[CHANNEL_OF(k)] : 1.0f);
      sum += g;
      products += g * ((get(from[AT(k)]) - high - low) * scale);
    }
    const float mean = CENTERED ? (float)(row_sum((double)sum) / WIDTH) : 0.0f;
    const float of_products = (float)(row_sum((double)products) / WIDTH);
    FOR_MINE(k) {
      const float g = get(slope[AT(k)]) * (SCALE ? w[CHANNEL_OF(k)] : 1.0f);
      const float normal = (get(from[AT(k)]) - high - low) * scale;
      to[AT(k)] = put<A>(scale * (g - mean - normal * of_products));
    }
  }
}
)cuda";

/// A separate text, because it maps threads to columns instead of rows.
inline constexpr char block_normalization_sums_text[] = R"cuda(
// Gradients of gamma and beta: column sums of dy * normal, and of dy.
KERNEL(sums)(const A* __restrict__ x, const A* __restrict__ dy, const double* __restrict__ saved,
             double* parts, float* dw, i64 rows, int count, Sums* workspace) {
  double of_products = 0, of_dy = 0;
  if (CHANNEL < CHANNELS) {
    FOR_TALL_ROWS(first) {
      float s = 0, q = 0;
      tall_rows(first, rows, [&](i64 row) {
        const i64 i = row * CHANNELS + CHANNEL;
        const i64 block = row / BLOCK_ROWS * SIDE_BY_SIDE + CHANNEL / (CHANNELS / SIDE_BY_SIDE);
        const float g = get(dy[i]), v = get(x[i]);
        s += g;
        q += g * (float)((v - saved[2 * block]) * saved[2 * block + 1]);
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

/// Keeps x; saves the statistics of each block. `Centered` = false: the mean that is subtracted is 0.
template <class Op, class Precision, bool Centered = true>
struct BlockNormalization : KernelTraits {
  using D = BasicCuda<Precision>;
  static constexpr bool keeps_x = true, skips_dw = true;
  static constexpr std::size_t saved(const Op& op) {
    return 2 * (op.in.size() / op.blocks().size()) * sizeof(double);
  }

  /// How the column sums are divided among blocks of threads.
  struct Prepared {
    Columns columns;
    int parts;
    std::size_t scratch_bytes() const { return columns.scratch_bytes(parts); }
  };
  static Prepared prepare(const Op& op, typename D::Context&, std::size_t count) {
    const Columns columns(op.channels());
    return {columns, columns.parts(count * op.in.size() / op.channels())};
  }

  static void forward(const Op& op, const Io<D>& io, Prepared&) {
    if (io.step.count == 0) return;
    io.device.launch(of_blocks(op, io, "forward"), grid(op, io), io.x[0], io.y, io.w,
                     reinterpret_cast<double*>(io.saved),
                     static_cast<std::int64_t>(blocks_of(op, io)));
  }
  /// One launch for the gradients of gamma and beta, one for dx. Without examples dw is cleared.
  static void backward(const Op& op, const Io<D>& io, Prepared& p) {
    if (io.step.count == 0) {
      if (io.dw != nullptr)
        io.device.clear(reinterpret_cast<std::byte*>(io.dw),
                        op.weights() * sizeof(typename D::real));
      return;
    }
    const auto rows = static_cast<std::int64_t>(io.step.count * op.in.size() / op.channels());
    const double* const saved = reinterpret_cast<const double*>(io.saved);
    double* const parts = reinterpret_cast<double*>(io.scratch);
    if (op.weights() > 0 && io.dw != nullptr)
      io.device.launch(of_columns(op, io, "sums"), p.columns.grid(p.parts), io.x[0], io.dy, saved,
                       parts, io.dw, rows, p.parts,
                       io.device.template handle<SumWorkspace>().get());
    if (io.dx[0] != nullptr)
      io.device.launch(of_blocks(op, io, "backward"), grid(op, io), io.x[0], io.dy, io.dx[0], io.w,
                       saved, static_cast<std::int64_t>(blocks_of(op, io)));
  }

 private:
  static constexpr Source blocks_source{"block_normalization", block_normalization_text,
                                        rows_functions},
      columns_source{"block_normalization_sums", block_normalization_sums_text, columns_functions};

  static std::size_t blocks_of(const Op& op, const Io<D>& io) {
    return io.step.count * op.in.size() / op.blocks().size();
  }
  static Grid grid(const Op& op, const Io<D>& io) {
    return Rows(op.blocks().size()).grid(blocks_of(op, io));
  }
  /// The kernels of blocks, one team of threads per block.
  static CUfunction of_blocks(const Op& op, const Io<D>& io, const char* entry) {
    const NormalizedBlocks blocks = op.blocks();
    const auto defines = with_activation<Precision>(
        std::array{Define("WIDTH", blocks.size()), Define("TEAM", Rows(blocks.size()).team),
                   Define("SIDE_BY_SIDE", blocks.groups), Define("BLOCK_CHANNELS", blocks.channels),
                   Define("CENTERED", Centered), Define("EPSILON", op.epsilon),
                   Define("SCALE", op.scale), Define("CENTER", op.center)});
    return io.device.kernel(blocks_source, entry, defines);
  }
  /// The column kernel, one thread per channel.
  static CUfunction of_columns(const Op& op, const Io<D>& io, const char* entry) {
    const auto defines = with_activation<Precision>(std::array{
        Define("CHANNELS", op.channels()), Define("LANES", Columns(op.channels()).lanes),
        Define("BLOCK_ROWS", op.blocks().rows), Define("SIDE_BY_SIDE", op.blocks().groups),
        Define("SCALE", op.scale), Define("CENTER", op.center)});
    return io.device.kernel(columns_source, entry, defines);
  }
};

}  // namespace lockstep::detail::cuda
