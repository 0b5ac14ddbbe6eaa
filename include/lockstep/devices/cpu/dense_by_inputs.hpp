/// \file
/// Dense on several threads, split over the inputs (split-K in forward). A thread works on the same
/// rows of the weights in forward, in both products of backward and, nearly, in the optimizer's
/// pass, so that they stay in its core's cache. oneDNN splits the outputs instead, and moves half
/// of the weights between cores in each pass.
///
///             w (inputs, units)        forward               backward
///     thread 0 | rows 0 .. m  |        y_0 = x[:, 0..m] w    dw[0..m] = x' dy, dx[:, 0..m] = dy w'
///     thread 1 | rows m .. n  |        y_1 = x[:, m..n] w    dw[m..n], dx[:, m..n]
///                                      y = y_0 + y_1 + bias
///
/// Invariant: the threads' partial y are added in thread order.
#pragma once

#include <atomic>
#include <cstddef>

#include "lockstep/devices/cpu/column_sums.hpp"
#include "lockstep/devices/cpu/onednn.hpp"
#include "lockstep/devices/cpu/openmp.hpp"
#include "lockstep/layers/dense.hpp"

namespace lockstep::detail {

/// The passes of one DenseOp at one batch size, optionally followed by a ReLU.
class DenseByInputs {
 public:
  /// Whether this split is the fastest: the threads' partial y must be small relative to the
  /// weights (docs/lab/steps.md, "Small batches on two threads").
  static bool fits(const DenseOp& op, std::size_t count, int threads) {
    return threads > 1 && op.inputs >= 256 &&
           4 * count * static_cast<std::size_t>(threads) <= static_cast<std::size_t>(op.inputs);
  }

  DenseByInputs() = default;
  DenseByInputs(int threads, bool relu) : threads_(threads), relu_(relu) {}
  explicit operator bool() const { return threads_ > 0; }
  /// Bytes of scratch for `count` examples.
  std::size_t scratch_bytes(const DenseOp& op, std::size_t count) const {
    return parts_bytes(op, count) + column_sums_bytes(threads_, static_cast<std::size_t>(op.units));
  }

  /// y (count, units) = x (count, inputs) w (inputs, units) + bias, which follows w if there is
  /// one.
  void forward(const DenseOp& op, const onednn::Site& at, std::size_t count, const float* x,
               const float* w, float* y, float* scratch) const {
    const auto units = static_cast<std::size_t>(op.units), size = count * units;
    const std::size_t parts = for_inputs(op, at, [&](Slice in, std::size_t thread) {
      return multiply('N', 'N', count, units, in.count, x + in.first, op.inputs,
                      w + in.first * units, op.units, scratch + thread * size, op.units);
    });
    const float* const bias = op.bias ? w + op.kernel_size() : nullptr;
    parallel_ranges(threads_, count, parallel_grain(parts * units), [&](Slice rows, std::size_t) {
      for (std::size_t n = rows.first; n < rows.first + rows.count; ++n)
        for (std::size_t k = 0; k < units; ++k) {
          float sum = bias != nullptr ? bias[k] : 0.0f;
          for (std::size_t t = 0; t < parts; ++t) sum += scratch[t * size + n * units + k];
          y[n * units + k] = relu_ && sum < 0 ? 0.0f : sum;  // propagates NaN
        }
    });
  }

  /// Writes dw (inputs, units), followed by db (units) if the op has a bias, and dx (count, inputs),
  /// except for one that is null.
  void backward(const DenseOp& op, const onednn::Site& at, std::size_t count, const float* x,
                const float* w, const float* y, const float* dy, float* dx, float* dw,
                float* scratch) const {
    const auto units = static_cast<std::size_t>(op.units), size = count * units;
    if (relu_) {
      for (std::size_t i = 0; i < size; ++i) scratch[i] = y[i] <= 0 ? 0.0f : dy[i];
      dy = scratch;
    }
    for_inputs(op, at, [&](Slice in, std::size_t) {
      const dnnl_status_t status =
          dw == nullptr ? dnnl_success
                        : multiply('T', 'N', in.count, units, count, x + in.first, op.inputs, dy,
                                   op.units, dw + in.first * units, op.units);
      if (status != dnnl_success || dx == nullptr) return status;
      return multiply('N', 'T', count, in.count, units, dy, op.units, w + in.first * units,
                      op.units, dx + in.first, op.inputs);
    });
    if (op.bias && dw != nullptr)
      column_sums(threads_, dy, count, units, dw + op.kernel_size(),
                  reinterpret_cast<std::byte*>(scratch) + parts_bytes(op, count));
  }

 private:
  /// Bytes of the threads' partial y, rounded up to whole cache lines.
  std::size_t parts_bytes(const DenseOp& op, std::size_t count) const {
    return (static_cast<std::size_t>(threads_) * count * static_cast<std::size_t>(op.units) *
                sizeof(float) +
            63) /
           64 * 64;
  }

  /// c (m, n) = op(a) (m, k) op(b) (k, n), row-major; 'T' transposes, as in BLAS.
  static dnnl_status_t multiply(char transpose_a, char transpose_b, std::size_t m, std::size_t n,
                                std::size_t k, const float* a, int row_of_a, const float* b,
                                int row_of_b, float* c, int row_of_c) {
    return dnnl_sgemm(transpose_a, transpose_b, static_cast<dnnl_dim_t>(m),
                      static_cast<dnnl_dim_t>(n), static_cast<dnnl_dim_t>(k), 1.0f, a, row_of_a, b,
                      row_of_b, 0.0f, c, row_of_c);
  }

  /// Calls body(range of inputs, thread) on each thread. Inside of the body oneDNN runs on that
  /// thread alone. Returns the number of ranges, which few inputs make smaller than threads_.
  template <class Body>
  std::size_t for_inputs(const DenseOp& op, const onednn::Site& at, const Body& body) const {
    at.check_team(threads_);
    std::atomic<dnnl_status_t> status{dnnl_success};
    std::atomic<std::size_t> ranges{0};
    parallel_ranges(threads_, static_cast<std::size_t>(op.inputs), 16,
                    [&](Slice in, std::size_t thread) {
                      const dnnl_status_t mine = body(in, thread);
                      ++ranges;
                      if (mine != dnnl_success) status = mine;
                    });
    at.check(status);
    return ranges;
  }

  int threads_ = 0;
  bool relu_ = false;
};

}  // namespace lockstep::detail
