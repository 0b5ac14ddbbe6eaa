/// \file
/// Conv2D on 1 to 4 channels, ReLU and MaxPooling2D fused on a GPU: one launch forward and one
/// backward, for all gradients. Invariants: a byte per result records which element of its window
/// won, or that none is positive or NaN; only winners contribute to backward; NaN propagates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/ops/fused/pooled_convolution.hpp"
#include "lockstep/devices/cuda/support/sums.hpp"

namespace lockstep {
namespace detail::cuda {

/// The passes at one batch size.
template <class Precision>
class PooledConvolution {
 public:
  using D = BasicCuda<Precision>;

  PooledConvolution() = default;
  PooledConvolution(const ConvReLUPoolOp& op, CudaContext& context, std::size_t count)
      : weights_(op.conv.kernel_size() +
                 (op.conv.bias ? static_cast<std::size_t>(op.conv.filters) : 0)) {
    if (count == 0) return;
    const int lanes = pooled_lanes(op.conv.filters);
    groups_ = static_cast<unsigned>((op.conv.filters + lanes - 1) / lanes);
    const auto prepare = [&](const char* text, const char* entry, int threads, int windows_each,
                             CUfunction& function) {
      const int at_once = threads / lanes;
      const PoolTile tile = PoolTile::of(op, at_once * windows_each);
      const std::int64_t tiles = static_cast<std::int64_t>(count) * tile.down(op) * tile.across(op);
      if (tiles > std::numeric_limits<int>::max())
        throw DeviceError(
            "cuda: a convolution of {} examples is too large for one launch; use a smaller batch",
            count);
      function = context.kernel(Source{"pooled_convolution", text, pooled_convolution_functions},
                                entry, pooled_convolution_defines<Precision>(op, tile, threads));
      return static_cast<int>(tiles);
    };
    forward_tiles_ =
        prepare(pooled_convolution_forward_text, "forward", forward_threads, 8, forward_);
    backward_tiles_ =
        prepare(pooled_convolution_backward_text, "backward", backward_threads, 16, backward_);
    // Few parts, because one block adds them up; but no sum may get too long.
    const std::size_t at_once = static_cast<std::size_t>(backward_threads / lanes),
                      windows = count * op.out().size() / static_cast<std::size_t>(op.conv.filters);
    const int most = static_cast<int>(std::max(max_parts, windows / (at_once * longest)));
    each_ = (backward_tiles_ + most - 1) / most;
    parts_ = static_cast<unsigned>((backward_tiles_ + each_ - 1) / each_);
  }

  std::size_t scratch_bytes() const { return parts_ > 1 ? parts_ * weights_ * sizeof(float) : 0; }

  void forward(const ConvReLUPoolOp&, const Io<D>& io) const {
    if (io.step.count == 0) return;
    io.device.launch(forward_,
                     Grid{{static_cast<unsigned>(forward_tiles_), groups_, 1},
                          {static_cast<unsigned>(forward_threads), 1, 1}},
                     io.x[0], io.w, io.y, io.saved);
  }
  void backward(const ConvReLUPoolOp&, const Io<D>& io) const {
    if (io.step.count == 0)
      return io.device.clear(reinterpret_cast<std::byte*>(io.dw), weights_ * sizeof(float));
    io.device.launch(backward_,
                     Grid{{parts_, groups_, 1}, {static_cast<unsigned>(backward_threads), 1, 1}},
                     io.x[0], static_cast<const A*>(io.dy), static_cast<const std::byte*>(io.saved),
                     reinterpret_cast<float*>(io.scratch), io.dw,
                     io.device.template handle<SumWorkspace>().get(), backward_tiles_, each_);
  }

  /// A filter must fit into a thread's registers; for larger ones cuDNN is faster.
  static constexpr std::size_t max_taps = 49;
  static constexpr int max_pool_taps = 16;
  static constexpr bool fits(const ConvReLUPoolOp& op) {
    const Pooling2DWindow& w = op.pool.window;
    return op.conv.kernel_size() / static_cast<std::size_t>(op.conv.filters) <= max_taps &&
           w.pool.height * w.pool.width <= max_pool_taps &&
           PoolTile{}.numbers(op) <= PoolTile::max_numbers &&
           op.conv.filters <= 32 * static_cast<int>(SumWorkspace::groups);
  }

 private:
  using A = typename Precision::activation;
  static constexpr int forward_threads = 256, backward_threads = 512;
  static constexpr std::size_t max_parts = 128;
  static constexpr std::size_t longest = 1024;  ///< terms of a thread's sum, with a large batch

  std::size_t weights_ = 0;
  CUfunction forward_ = nullptr, backward_ = nullptr;
  int forward_tiles_ = 0, backward_tiles_ = 0, each_ = 1;
  unsigned groups_ = 1, parts_ = 0;
};

}  // namespace detail::cuda

/// Keeps x and a winner per result.
template <class Precision>
struct Kernel<ConvReLUPoolOp, BasicCuda<Precision>>
    : PreparedKernel<ConvReLUPoolOp, BasicCuda<Precision>,
                     detail::cuda::PooledConvolution<Precision>> {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true;
  static constexpr bool fits(const ConvReLUPoolOp& op) {
    return detail::cuda::PooledConvolution<Precision>::fits(op);
  }
  static constexpr std::size_t saved(const ConvReLUPoolOp& op) { return op.out().size(); }
};

static_assert(HasKernel<ConvReLUPoolOp, Cuda>);

}  // namespace lockstep
