/// \file
/// Passes over weights and gradients around an update, on a GPU: penalties, squared norms, moving
/// averages, loss unscaling. Invariant: sums are in double, in an order that depends only on the
/// size.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/buffer_ranges.hpp"
#include "lockstep/devices/cuda/support/sums.hpp"

namespace lockstep {

namespace detail::cuda {

/// Settings of an update before its rule, see UpdateIo. A kernel argument.
struct Adjust {
  float l1, l2, decay, scale, limit;
  int adjusts;
};
template <class D>
Adjust adjust_of(const UpdateIo<D>& io) {
  return {static_cast<float>(io.penalty.l1), static_cast<float>(io.penalty.l2),
          static_cast<float>(io.decay),      static_cast<float>(io.scale),
          static_cast<float>(io.limit),      io.is_adjusted() ? 1 : 0};
}

/// Laid out as `Range` in the text.
struct PenaltyRange {
  std::int64_t begin, end;
  double l1, l2;
};

inline constexpr Source adjust_source{"adjust", R"cuda(
// g += gradient of the penalty; whole += g, accumulated; squares += the squared norm.
KERNEL(gradient_pass)(const float* w, float* g, float* whole, float l1, float l2, int penalised,
                      double* squares, Sums* workspace, i64 n) {
  double x[1] = {0};
  for (i64 i = INDEX; i < n; i += STRIDE) {
    float one = g[i];
    if (penalised) {
      const float weight = w[i];
      one += (weight > 0 ? l1 : weight < 0 ? -l1 : 0.0f) + 2 * l2 * weight;
      g[i] = one;
    }
    if (whole) whole[i] = one += whole[i];
    x[0] += (double)one * (double)one;
  }
  if (squares && grid_sum(x, workspace) && threadIdx.x == 0) *squares += x[0];
}

// g *= factor; wrong += the number of infinite or NaN elements.
KERNEL(unscale)(float* g, float factor, double* wrong, Sums* workspace, i64 n) {
  double x[1] = {0};
  for (i64 i = INDEX; i < n; i += STRIDE) {
    const float one = g[i];
    x[0] += one - one == 0 ? 0 : 1;
    g[i] = one * factor;
  }
  if (grid_sum(x, workspace) && threadIdx.x == 0) *wrong += x[0];
}

// average = old * average + rest * w; optionally w = average.
KERNEL(moving_average)(float* w, float* average, float old, float rest, int overwrites, i64 n) {
  FOR_EACH(i, n) {
    const float now = old * average[i] + rest * w[i];
    average[i] = now;
    if (overwrites) w[i] = now;
  }
}

struct Range {
  i64 begin, end;
  double l1, l2;
};
// Elements between ranges have no penalty.
KERNEL(penalties)(const float* w, const Range* __restrict__ ranges, int count, double* sum,
                  Sums* workspace, i64 first, i64 n) {
  double x[1] = {0};
  for (i64 i = first + INDEX; i < n; i += STRIDE) {
    const Range range = ranges[range_at(ranges, count, i)];
    if (i >= range.end) continue;
    const double v = w[i];
    x[0] += range.l1 * (v < 0 ? -v : v) + range.l2 * (v * v);
  }
  if (grid_sum(x, workspace) && threadIdx.x == 0) *sum += x[0];
}
)cuda"};

}  // namespace detail::cuda

/// One launch for penalty, accumulation and squared norm, whichever are requested.
template <class Precision>
struct Kernel<GradientPass, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  static void run(GradientPass, const GradientPassIo<BasicCuda<Precision>>& io) {
    using detail::cuda::SumWorkspace;
    if (io.size == 0 || (!io.penalty && io.sum == nullptr && io.squares == nullptr)) return;
    io.device.launch(
        io.device.kernel(detail::cuda::adjust_source, "gradient_pass", {}),
        SumWorkspace::grid(io.size), io.w, io.g, io.sum, static_cast<float>(io.penalty.l1),
        static_cast<float>(io.penalty.l2), io.penalty ? 1 : 0, io.squares,
        io.device.template handle<SumWorkspace>().get(), static_cast<std::int64_t>(io.size));
  }
};

/// Loss scaling: divides gradients by the scale and counts overflows.
template <class Precision>
struct Kernel<Unscaling, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  static void run(Unscaling op, const UnscalingIo<BasicCuda<Precision>>& io) {
    using detail::cuda::SumWorkspace;
    if (io.size == 0) return;
    io.device.launch(io.device.kernel(detail::cuda::adjust_source, "unscale", {}),
                     SumWorkspace::grid(io.size), io.g, static_cast<float>(op.factor), io.wrong,
                     io.device.template handle<SumWorkspace>().get(),
                     static_cast<std::int64_t>(io.size));
  }
};

/// Averages of weights (EMA).
template <class Precision>
struct Kernel<MovingAverage, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  static void run(const MovingAverage& op, const MovingAverageIo<BasicCuda<Precision>>& io) {
    if (io.size == 0) return;
    io.device.launch(io.device.kernel(detail::cuda::adjust_source, "moving_average", {}),
                     detail::cuda::Grid::over(io.size), io.w, io.average,
                     static_cast<float>(op.momentum), static_cast<float>(1 - op.momentum),
                     op.overwrites ? 1 : 0, static_cast<std::int64_t>(io.size));
  }
};

/// The regularisation loss.
template <class Precision>
struct Kernel<Penalty, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  static void run(const Penalty& penalty, const PenaltyIo<BasicCuda<Precision>>& io) {
    const PenaltySegment all{0, io.size, penalty};
    run_all({&all, 1}, io);
  }
  /// sum += l1 * |w| + l2 * w^2 over all weights, in one launch.
  static void run_all(std::span<const PenaltySegment> segments,
                      const PenaltyIo<BasicCuda<Precision>>& io) {
    using detail::cuda::SumWorkspace, detail::cuda::PenaltyRange;
    auto& ranges = io.device.template handle<detail::cuda::Ranges<PenaltyRange>>();
    ranges.clear();
    std::size_t begin = io.size, end = 0;
    for (const PenaltySegment& s : segments) {
      if (!s.penalty || s.begin == s.end) continue;
      ranges.add({static_cast<std::int64_t>(s.begin), static_cast<std::int64_t>(s.end),
                  s.penalty.l1, s.penalty.l2});
      begin = std::min(begin, s.begin);
      end = s.end;
    }
    if (end == 0) return;
    io.device.launch(io.device.kernel(detail::cuda::adjust_source, "penalties", {}),
                     SumWorkspace::grid(end - begin), io.w, ranges.upload(io.device),
                     ranges.count(), io.sum, io.device.template handle<SumWorkspace>().get(),
                     static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
  }
};

static_assert(HasKernel<GradientPass, Cuda> && HasKernel<Unscaling, Cuda> &&
              HasKernel<MovingAverage, Cuda> && HasKernel<Penalty, Cuda>);

}  // namespace lockstep
