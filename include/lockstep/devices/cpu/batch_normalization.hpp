/// \file
/// BatchNormalization on the CPU, in hand-written loops, alone or fused with its epilogue.
///
///     thread 0   block | block | block ...   sums of a block: in T, in registers
///                   \      |      /
///                sums of the thread, in double
///                          |
///                merged in thread order, in double: statistics of the replica
///
/// Invariants: sums within a block are in the device's type, across blocks and threads in double;
/// equal sizes and thread counts give equal bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/normalization_blocks.hpp"
#include "lockstep/devices/host/batch_normalization.hpp"

namespace lockstep {
namespace detail {

/// Buffers for one batch size: partial sums of the threads, and per-channel coefficients in the
/// device's type.
template <class T>
struct BatchNormalizationWorkspace {
  std::vector<double> replicas, threads;  // threads: (threads, moments_size)
  std::vector<T> blocks;                  // sums of the current block: (threads, 3, channels)
  std::array<std::vector<T>, 5> channel;  // mean, factor, beta, slope, shift: (channels) each
  std::size_t scratch_bytes() const { return 0; }
};

/// The loops of BatchNormalizationKernel on the CPU. The epilogue is applied in the same pass over
/// the rows.
template <class D, NormalizationEpilogue epilogue>
struct CpuBatchNormalizationLoops {
  using T = typename D::real;
  using Op = BatchNormalizationOp;
  using Workspace = BatchNormalizationWorkspace<T>;
  static constexpr bool adds = epilogue == NormalizationEpilogue::add_relu;

  static void moments(const Op& op, const Io<D>& io, double* to, Workspace& workspace) {
    const std::size_t channels = op.channels(), size = moments_size(channels);
    std::fill(workspace.threads.begin(), workspace.threads.end(), 0.0);
    each_block(op, io, [&](std::size_t at, std::size_t rows, std::size_t thread, auto&& run) {
      T* const block = workspace.blocks.data() + 3 * thread * channels;  // 3 (channels)
      run([=](auto bytes, std::size_t first, std::size_t last)
              __attribute__((always_inline, no_instrument_function)) {
                block_moments<bytes.value>(io.x[0] + at, rows, channels, first, last, block,
                                           block + channels, block + 2 * channels);
              });
      merge_block(workspace.threads.data() + thread * size, rows, block, channels);
    });
    to[0] = 0;
    for (std::size_t t = 0; t * size < workspace.threads.size(); ++t)
      merge_moments(to, workspace.threads.data() + t * size, channels);
  }

  static void normalize(const Op& op, const Io<D>& io, const BatchStatistics& s,
                        Workspace& workspace) {
    const std::size_t channels = op.channels();
    const ChannelAffine<T> affine = channel_affine(op, io, s, workspace);
    each_block(op, io, [&](std::size_t at, std::size_t rows, std::size_t, auto&& run) {
      run([&](auto bytes, std::size_t first, std::size_t last)
              __attribute__((always_inline, no_instrument_function)) {
                block_normalize<bytes.value, epilogue>(io.x[0] + at, added(io.x, at), io.y + at,
                                                       rows, channels, first, last, affine);
              });
    });
  }

  static void sums(const Op& op, const Io<D>& io, const BatchStatistics& s, double* sum_dy,
                   double* sum_dy_xhat, Workspace& workspace) {
    const std::size_t channels = op.channels(), size = moments_size(channels);
    const ChannelAffine<T> affine = channel_affine(op, io, s, workspace);
    std::fill(workspace.threads.begin(), workspace.threads.end(), 0.0);
    each_block(op, io, [&](std::size_t at, std::size_t rows, std::size_t thread, auto&& run) {
      T* const block = workspace.blocks.data() + 3 * thread * channels;  // 2 (channels)
      run([&](auto bytes, std::size_t first, std::size_t last)
              __attribute__((always_inline, no_instrument_function)) {
                block_sums<bytes.value, epilogue>(io.x[0] + at, io.y + at, io.dy + at,
                                                  added(io.dx, at), rows, channels, first, last,
                                                  affine, block, block + channels);
              });
      double* const sum = workspace.threads.data() + thread * size;
      for (std::size_t k = 0; k < 2 * channels; ++k) sum[k] += static_cast<double>(block[k]);
    });
    std::fill_n(sum_dy, channels, 0.0);
    std::fill_n(sum_dy_xhat, channels, 0.0);
    for (std::size_t t = 0; t * size < workspace.threads.size(); ++t)
      for (std::size_t k = 0; k < channels; ++k) {
        sum_dy[k] += workspace.threads[t * size + k];
        sum_dy_xhat[k] += workspace.threads[t * size + channels + k];
      }
    // The blocks summed dy (x - mean rounded to T); the correction makes that dy (x - mean).
    for (std::size_t k = 0; k < channels; ++k)
      sum_dy_xhat[k] = (sum_dy_xhat[k] - rounding(s, affine.mean, k) * sum_dy[k]) * s.scale[k];
  }

  static void gradient(const Op& op, const Io<D>& io, const BatchStatistics& s,
                       const double* mean_dy, const double* mean_dy_xhat, Workspace& workspace) {
    const std::size_t channels = op.channels();
    const ChannelAffine<T> affine = channel_affine(op, io, s, workspace);
    T* const slope = workspace.channel[3].data();  // (channels)
    T* const shift = workspace.channel[4].data();  // (channels)
    for (std::size_t k = 0; k < channels; ++k) {
      const double f = gamma(op, io, k) * s.scale[k];
      slope[k] = static_cast<T>(f * s.scale[k] * mean_dy_xhat[k]);
      shift[k] = static_cast<T>(f * mean_dy[k] -
                                rounding(s, affine.mean, k) * static_cast<double>(slope[k]));
    }
    // `sums` has stored the masked dy in dx2, so it need not be masked again.
    const bool masked = adds && io.dx[1] != nullptr;
    each_block(op, io, [&](std::size_t at, std::size_t rows, std::size_t, auto&& run) {
      run([&](auto bytes, std::size_t first,
              std::size_t last) __attribute__((always_inline, no_instrument_function)) {
        if (masked)
          block_gradient<bytes.value, NormalizationEpilogue::none>(
              io.x[0] + at, io.y + at, io.dx[1] + at, io.dx[0] + at, rows, channels, first, last,
              affine, slope, shift);
        else
          block_gradient<bytes.value, epilogue>(io.x[0] + at, io.y + at, io.dy + at, io.dx[0] + at,
                                                rows, channels, first, last, affine, slope, shift);
      });
    });
  }

 private:
  static double gamma(const Op& op, const Io<D>& io, std::size_t k) {
    return op.scale ? static_cast<double>(io.w[k]) : 1.0;
  }

  /// x[1] + at, or its gradient; null without an addition.
  template <class A>
  static A* added(A* const* x, std::size_t at) {
    return adds && x[1] != nullptr ? x[1] + at : nullptr;
  }

  static ChannelAffine<T> channel_affine(const Op& op, const Io<D>& io, const BatchStatistics& s,
                                         Workspace& workspace) {
    T* const mean = workspace.channel[0].data();    // (channels)
    T* const factor = workspace.channel[1].data();  // (channels)
    T* const beta = workspace.channel[2].data();    // (channels)
    for (std::size_t k = 0; k < op.channels(); ++k) {
      mean[k] = static_cast<T>(s.mean[k]);
      factor[k] = static_cast<T>(gamma(op, io, k) * s.scale[k]);
      const double b =
          op.center ? static_cast<double>(io.w[(op.scale ? op.channels() : 0) + k]) : 0;
      beta[k] = static_cast<T>(b - rounding(s, mean, k) * static_cast<double>(factor[k]));
    }
    return {mean, factor, beta};
  }

  /// The rounding error of a channel's mean in the device's type. Where the mean is large relative
  /// to the deviation, this error is of the deviation's size and must not be dropped.
  static double rounding(const BatchStatistics& s, const T* mean, std::size_t k) {
    return s.mean[k] - static_cast<double>(mean[k]);
  }

  /// merge_moments for one block, whose moments are about its own approximate mean.
  static void merge_block(double* into, std::size_t rows, const T* block, std::size_t channels) {
    const double n = static_cast<double>(rows), all = into[0] + n, share = n / all;
    for (std::size_t k = 0; k < channels; ++k) {
      const double off = static_cast<double>(block[channels + k]) / n,
                   mean = static_cast<double>(block[k]) + off,
                   old = into[0] > 0 ? into[1 + k] : mean,
                   squares = static_cast<double>(block[2 * channels + k]) - n * off * off;
      into[1 + k] = old + (mean - old) * share;
      into[1 + channels + k] += squares + (mean - old) * (mean - old) * into[0] * share;
    }
    into[0] = all;
  }

  /// Calls body(first element, rows, thread, run) for each block, on all threads. run(loop) calls
  /// the loop over all channels, with vectors where the processor has them.
  template <class Body>
  static void each_block(const Op& op, const Io<D>& io, const Body& body) {
    const std::size_t channels = op.channels(), block = rows_of_block(channels);
    const std::size_t vectors = longest_vectors<ActivationOf<D>>();
    parallel_ranges(
        io.device.threads(), io.step.count * op.rows(), parallel_grain(channels),
        [&](Slice rows, std::size_t thread) {
          for (std::size_t row = rows.first; row < rows.first + rows.count; row += block)
            body(row * channels, std::min(block, rows.first + rows.count - row), thread,
                 [&](const auto& loop) {
                   for_channels_of<T>(vectors, static_cast<int>(channels),
                                      [&](auto bytes, int first, int last)
                                          __attribute__((always_inline, no_instrument_function)) {
                                            loop(bytes, static_cast<std::size_t>(first),
                                                 static_cast<std::size_t>(last));
                                          });
                 });
        });
  }
};

/// Base of the CPU's kernels of BatchNormalization, fused or not.
template <class D, NormalizationEpilogue epilogue>
struct CpuBatchNormalization
    : BatchNormalizationKernel<D, CpuBatchNormalizationLoops<D, epilogue>> {
  static BatchNormalizationWorkspace<typename D::real> workspace(
      const BatchNormalizationOp& op, const typename D::Context& context) {
    const std::size_t channels = op.channels();
    const auto threads = static_cast<std::size_t>(context.threads());
    BatchNormalizationWorkspace<typename D::real> workspace;
    workspace.threads.resize(threads * moments_size(channels));
    workspace.blocks.resize(threads * 3 * channels);
    for (auto& numbers : workspace.channel) numbers.resize(channels);
    return workspace;
  }
};

}  // namespace detail

template <class P>
struct Kernel<BatchNormalizationOp, BasicCpu<P>>
    : detail::CpuBatchNormalization<BasicCpu<P>, detail::NormalizationEpilogue::none> {
  using library_kernel = Kernel;
  using Prepared = detail::BatchNormalizationWorkspace<typename BasicCpu<P>::real>;

  static Prepared prepare(const BatchNormalizationOp& op, typename BasicCpu<P>::Context& context,
                          std::size_t) {
    return Kernel::workspace(op, context);
  }
};

static_assert(HasKernel<BatchNormalizationOp, Cpu>);

}  // namespace lockstep
