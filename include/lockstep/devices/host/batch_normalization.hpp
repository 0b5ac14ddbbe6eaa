/// \file
/// BatchNormalization on every device over host memory.
///
///     forward (training)               backward
///     moments of this replica          sums of dy, dy x_hat  (x_hat = (x - mean) scale)
///       | all-gather if synchronized     |--> dgamma, dbeta  (per replica; the buckets sum them)
///     mean, scale, running statistics    | all-reduce if synchronized
///       |                                |
///     y = x_hat gamma + beta           dx = gamma scale (dy - mean(dy) - x_hat mean(dy x_hat))
///
/// In inference, and so in a frozen layer, mean and variance are the running statistics, constants
/// for backward: dx = gamma scale dy.
///
/// Invariants: statistics and sums are in double. With `synchronized`, all replicas use the same
/// batch statistics and write the same running statistics, even a replica without examples.
/// Otherwise a replica without examples leaves its running statistics unchanged, and
/// training/step/state_average.hpp averages those of the other replicas.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/batch_statistics.hpp"
#include "lockstep/layers/normalization/batch_normalization.hpp"

namespace lockstep {
namespace detail {

/// Batch statistics that forward saves for backward.
struct BatchStatistics {
  double rows;                 ///< number of rows over all replicas that share the statistics
  const double *mean, *scale;  ///< (channels) each; scale = 1 / sqrt(variance + epsilon)
};

/// Kernel shared by all devices over host memory. `Loops` supplies the passes over the rows, each
/// of `channels` elements:
///
/// - `moments(op, io, to)`: moments of this replica's rows, of which there is at least one; for the
///   layout see moments_size().
/// - `normalize(op, io, s)`: y = (x - mean) scale gamma + beta.
/// - `sums(op, io, s, sum_dy, sum_dy_xhat)`: sums of dy, and of dy (x - mean) scale.
/// - `gradient(op, io, s, mean_dy, mean_dy_xhat)`: dx = gamma scale (dy - mean_dy - (x -
///   mean) scale mean_dy_xhat).
///
/// `Loops::adds`: normalize adds x[1]. The last argument of each is a `Loops::Workspace&`: a struct with `std::vector<double> replicas`
/// and any buffers that the loops need.
template <class D, class Loops>
struct BatchNormalizationKernel : KernelTraits {
  using Prepared = typename Loops::Workspace;
  static constexpr bool handles_recompute = true, skips_dw = true;
  /// Not what is added.
  static constexpr bool keeps_x(const auto&, std::size_t operand) { return operand == 0; }
  static constexpr bool exchanges(const BatchNormalizationOp& op) { return op.synchronized; }
  static constexpr bool updates_state(const BatchNormalizationOp&) { return true; }
  /// Layout of `io.once`, in doubles: rows (1), mean (channels), scale (channels), sum_dy
  /// (channels), sum_dy_xhat (channels).
  static constexpr std::size_t saved_once(const BatchNormalizationOp& op) {
    return (1 + 4 * op.channels()) * sizeof(double);
  }

  static void forward(const BatchNormalizationOp& op, const Io<D>& io, Prepared& workspace) {
    using T = typename D::real;
    const std::size_t channels = op.channels();
    double* const rows = reinterpret_cast<double*>(io.once);
    double* const mean = rows + 1;                   // (channels)
    double* const variance = mean + channels;        // (channels), replaced by the scale below
    T* const moving_mean = io.state;                 // (channels)
    T* const moving_variance = io.state + channels;  // (channels)
    if (io.step.is_recompute) {  // the statistics of the first run are still valid
      if (*rows > 0 && io.step.count > 0)
        Loops::normalize(op, io, BatchStatistics{*rows, mean, variance}, workspace);
      return;
    }
    if (io.step.training) {
      *rows = 0;
      if (io.step.count > 0) Loops::moments(op, io, rows, workspace);
      if (op.synchronized && io.step.group.size() > 1) {
        if (io.step.count == 0) std::fill_n(mean, 2 * channels, 0.0);
        merge_over_replicas(io.step.group, rows, channels, workspace.replicas);
      }
      if (*rows == 0) return;
      const auto move = [&](T& moving, double value) {
        moving =
            static_cast<T>(op.momentum * static_cast<double>(moving) + (1 - op.momentum) * value);
      };
      for (std::size_t k = 0; k < channels; ++k) {
        variance[k] /= *rows;
        move(moving_mean[k], mean[k]);
        move(moving_variance[k], variance[k]);
      }
    } else {
      *rows = static_cast<double>(io.step.count * op.rows());
      for (std::size_t k = 0; k < channels; ++k) {
        mean[k] = static_cast<double>(moving_mean[k]);
        variance[k] = static_cast<double>(moving_variance[k]);
      }
    }
    for (std::size_t k = 0; k < channels; ++k)
      variance[k] = 1 / std::sqrt(variance[k] + static_cast<double>(op.epsilon));
    if (io.step.count > 0)
      Loops::normalize(op, io, BatchStatistics{*rows, mean, variance}, workspace);
  }

  static void backward(const BatchNormalizationOp& op, const Io<D>& io, Prepared& workspace) {
    using T = typename D::real;
    const std::size_t channels = op.channels();
    double* const rows = reinterpret_cast<double*>(io.once);
    const BatchStatistics s{*rows, rows + 1, rows + 1 + channels};
    double* const sum_dy = rows + 1 + 2 * channels;  // (channels)
    double* const sum_dy_xhat = sum_dy + channels;   // (channels)
    // The loops over the sums also write the gradient of what they add.
    bool wants_sums = io.step.training || io.dw != nullptr;
    if constexpr (Loops::adds) wants_sums = wants_sums || io.dx[1] != nullptr;
    if (io.step.count > 0 && wants_sums)
      Loops::sums(op, io, s, sum_dy, sum_dy_xhat, workspace);
    else
      std::fill_n(sum_dy, 2 * channels, 0.0);
    // dgamma and dbeta are those of this replica; the gradient buckets sum them over replicas.
    if (T* dw = io.dw; dw != nullptr) {
      if (op.scale)
        for (std::size_t k = 0; k < channels; ++k) *dw++ = static_cast<T>(sum_dy_xhat[k]);
      if (op.center)
        for (std::size_t k = 0; k < channels; ++k) *dw++ = static_cast<T>(sum_dy[k]);
    }
    if (io.dx[0] == nullptr) return;
    if (!io.step.training)
      std::fill_n(sum_dy, 2 * channels, 0.0);
    else if (op.synchronized && io.step.group.size() > 1)
      io.step.group.all_reduce(sum_dy, 2 * channels);
    if (io.step.count == 0) return;
    for (std::size_t k = 0; k < 2 * channels; ++k) sum_dy[k] /= *rows;
    Loops::gradient(op, io, s, sum_dy, sum_dy_xhat, workspace);
  }
};

/// The passes as plain loops, element by element in double.
template <class D>
struct BatchNormalizationLoops {
  using T = typename D::real;
  using A = ActivationOf<D>;
  using Op = BatchNormalizationOp;
  static constexpr bool adds = false;
  struct Workspace {
    std::vector<double> replicas;
    std::size_t scratch_bytes() const { return 0; }
  };

  static void moments(const Op& op, const Io<D>& io, double* to, Workspace&) {
    const std::size_t channels = op.channels(), rows = io.step.count * op.rows();
    double* const mean = to + 1;              // (channels)
    double* const squares = mean + channels;  // (channels)
    to[0] = static_cast<double>(rows);
    std::fill_n(mean, 2 * channels, 0.0);
    for_each(op, io, [&](std::size_t i, std::size_t k) { mean[k] += at(io.x[0], i); });
    for (std::size_t k = 0; k < channels; ++k) mean[k] /= to[0];
    for_each(op, io, [&](std::size_t i, std::size_t k) {
      const double d = at(io.x[0], i) - mean[k];
      squares[k] += d * d;
    });
  }
  static void normalize(const Op& op, const Io<D>& io, const BatchStatistics& s, Workspace&) {
    const T* const gamma = op.scale ? io.w : nullptr;  // (channels)
    const T* const beta =
        op.center ? io.w + (op.scale ? op.channels() : 0) : nullptr;  // (channels)
    for_each(op, io, [&](std::size_t i, std::size_t k) {
      const double normal = (at(io.x[0], i) - s.mean[k]) * s.scale[k];
      io.y[i] = static_cast<A>(normal * (gamma ? at(gamma, k) : 1) + (beta ? at(beta, k) : 0));
    });
  }
  static void sums(const Op& op, const Io<D>& io, const BatchStatistics& s, double* sum_dy,
                   double* sum_dy_xhat, Workspace&) {
    std::fill_n(sum_dy, op.channels(), 0.0);
    std::fill_n(sum_dy_xhat, op.channels(), 0.0);
    for_each(op, io, [&](std::size_t i, std::size_t k) {
      sum_dy[k] += at(io.dy, i);
      sum_dy_xhat[k] += at(io.dy, i) * (at(io.x[0], i) - s.mean[k]) * s.scale[k];
    });
  }
  static void gradient(const Op& op, const Io<D>& io, const BatchStatistics& s,
                       const double* mean_dy, const double* mean_dy_xhat, Workspace&) {
    const T* const gamma = op.scale ? io.w : nullptr;  // (channels)
    for_each(op, io, [&](std::size_t i, std::size_t k) {
      const double normal = (at(io.x[0], i) - s.mean[k]) * s.scale[k];
      io.dx[0][i] = static_cast<A>((gamma ? at(gamma, k) : 1) * s.scale[k] *
                                   (at(io.dy, i) - mean_dy[k] - normal * mean_dy_xhat[k]));
    });
  }

 private:
  template <class E>
  static double at(const E* p, std::size_t i) {
    return static_cast<double>(p[i]);
  }
  template <class F>
  static void for_each(const Op& op, const Io<D>& io, const F& f) {
    const std::size_t channels = op.channels(), rows = io.step.count * op.rows();
    for (std::size_t i = 0, row = 0; row < rows; ++row)
      for (std::size_t k = 0; k < channels; ++k, ++i) f(i, k);
  }
};

}  // namespace detail

template <HostDevice D>
struct Kernel<BatchNormalizationOp, D>
    : detail::BatchNormalizationKernel<D, detail::BatchNormalizationLoops<D>> {
  using library_kernel = Kernel;
  using typename detail::BatchNormalizationKernel<D, detail::BatchNormalizationLoops<D>>::Prepared;
  static Prepared prepare(const BatchNormalizationOp&, typename D::Context&, std::size_t) {
    return {};
  }
};

}  // namespace lockstep
