/// \file
/// DepthwiseConv2D on a GPU. Invariants: one result per thread, with adjacent threads on adjacent
/// channels; the order of the sums in dw depends only on the sizes.
///
///     y[n, p, f] = sum over taps t of x[n, p at t, f / EACH] * w[t, f] + b[f]
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/column_sums.hpp"
#include "lockstep/devices/cuda/support/convolution_text.hpp"
#include "lockstep/layers/convolution/depthwise_conv2d.hpp"

namespace lockstep {
namespace detail::cuda {

/// FILTERS = CHANNELS * EACH. The grid of dw is groups of WIDTH filters x ranges of pixels x taps.
inline constexpr Source depthwise_source{"depthwise_conv2d", R"cuda(
// One thread per output; taps outside of the image are skipped.
KERNEL(forward)(const A* __restrict__ x, const float* __restrict__ w, const float* bias, A* y,
                i64 n) {
  FOR_EACH(i, n) {
    const int f = (int)(i % FILTERS);
    const i64 pixel = i / FILTERS, row = pixel / OUT_WIDTH;
    const int left = (int)(pixel % OUT_WIDTH) * STRIDE_X - LEFT;
    const int top = (int)(row % OUT_HEIGHT) * STRIDE_Y - TOP;
    const A* const image = x + row / OUT_HEIGHT * (IN_HEIGHT * IN_WIDTH * CHANNELS) + f / EACH;
    float sum = bias ? bias[f] : 0.0f;
    for (int dy = 0; dy < KERNEL_HEIGHT; ++dy)
      for (int dx = 0; dx < KERNEL_WIDTH; ++dx) {
        const int down = top + dy * DILATION_Y, across = left + dx * DILATION_X;
        if ((u32)down < IN_HEIGHT && (u32)across < IN_WIDTH)
          sum += get(image[(down * IN_WIDTH + across) * CHANNELS]) *
                 w[(dy * KERNEL_WIDTH + dx) * FILTERS + f];
      }
    y[i] = put<A>(sum);
  }
}

// Gathers from all outputs that read the input, so no two threads add to one place.
KERNEL(backward_data)(const A* __restrict__ dy, const float* __restrict__ w, A* dx, i64 n) {
  FOR_EACH(i, n) {
    const int k = (int)(i % CHANNELS);
    const i64 pixel = i / CHANNELS, row = pixel / IN_WIDTH;
    const int right = (int)(pixel % IN_WIDTH) + LEFT, bottom = (int)(row % IN_HEIGHT) + TOP;
    const A* const image = dy + row / IN_HEIGHT * (OUT_HEIGHT * OUT_WIDTH * FILTERS);
    float sum = 0;
    for (int r = 0; r < KERNEL_HEIGHT; ++r)
      for (int c = 0; c < KERNEL_WIDTH; ++c) {
        const int down = bottom - r * DILATION_Y, across = right - c * DILATION_X;
        if (down < 0 || across < 0 || down % STRIDE_Y != 0 || across % STRIDE_X != 0) continue;
        if (down / STRIDE_Y >= OUT_HEIGHT || across / STRIDE_X >= OUT_WIDTH) continue;
        const int at = (down / STRIDE_Y * OUT_WIDTH + across / STRIDE_X) * FILTERS;
        for (int f = k * EACH; f < (k + 1) * EACH; ++f)
          sum += get(image[at + f]) * w[(r * KERNEL_WIDTH + c) * FILTERS + f];
      }
    dx[i] = put<A>(sum);
  }
}

// One tap (blockIdx.z) and one range of pixels (blockIdx.y) per block, summed in double.
KERNEL(backward_weights)(const A* __restrict__ x, const A* __restrict__ dy, float* parts,
                         i64 pixels, i64 each) {
  __shared__ double part[256];
  const int t = threadIdx.x, f = blockIdx.x * WIDTH + t % WIDTH, tap = blockIdx.z;
  const int above = tap / KERNEL_WIDTH * DILATION_Y - TOP;
  const int before = tap % KERNEL_WIDTH * DILATION_X - LEFT;
  const i64 begin = blockIdx.y * each, end = min(pixels, begin + each);
  double sum = 0;
  if (f < FILTERS)
    for (i64 p = begin + t / WIDTH; p < end; p += 256 / WIDTH) {
      const i64 row = p / OUT_WIDTH;
      const int down = (int)(row % OUT_HEIGHT) * STRIDE_Y + above;
      const int across = (int)(p % OUT_WIDTH) * STRIDE_X + before;
      if ((u32)down < IN_HEIGHT && (u32)across < IN_WIDTH)
        sum += get(x[((row / OUT_HEIGHT * IN_HEIGHT + down) * IN_WIDTH + across) * CHANNELS +
                     f / EACH]) *
               get(dy[p * FILTERS + f]);
    }
  part[t] = sum;
  __syncthreads();
  if (t >= WIDTH || f >= FILTERS) return;
  for (int i = t + WIDTH; i < 256; i += WIDTH) sum += part[i];
  parts[((i64)blockIdx.y * (KERNEL_HEIGHT * KERNEL_WIDTH) + tap) * FILTERS + f] = (float)sum;
}
)cuda"};

/// The passes of DepthwiseConv2D at one batch size.
template <class Precision>
class DepthwiseCalls {
 public:
  using D = BasicCuda<Precision>;

  DepthwiseCalls() = default;
  DepthwiseCalls(const DepthwiseConv2DOp& op, CudaContext& context, std::size_t count)
      : width_(block_width(op.filters())) {
    if (count == 0) return;
    pixels_ = static_cast<std::int64_t>(count * op.out().size()) / op.filters();
    cut_ = RowParts::of(pixels_, 256 / width_);
    std::vector<Define> defines = convolution_defines(Conv2DOp{
        op.in, op.filters(), op.kernel, op.strides, op.dilation, op.padding, op.bias, op.in[2]});
    defines.emplace_back("EACH", op.multiplier);
    defines.emplace_back("WIDTH", width_);
    defines.emplace_back("ACTIVATION", activation_code<Precision>);
    forward_ = context.kernel(depthwise_source, "forward", defines);
    data_ = context.kernel(depthwise_source, "backward_data", defines);
    weights_ = context.kernel(depthwise_source, "backward_weights", defines);
    add_ = context.kernel(add_parts_source, "add_parts", {});
    if (op.bias) db_ = {context, pixels_, op.filters()};
    scratch_ = std::max(db_.scratch_bytes(),
                        cut_.parts == 1 ? 0 : cut_.parts * op.kernel_size() * sizeof(float));
  }

  std::size_t scratch_bytes() const { return scratch_; }

  /// One launch, bias included.
  void forward(const DepthwiseConv2DOp& op, const Io<D>& io) const {
    const std::size_t n = io.step.count * op.out().size();
    if (n == 0) return;
    io.device.launch(forward_, Grid::over(n), io.x[0], io.w,
                     op.bias ? io.w + op.kernel_size() : nullptr, io.y,
                     static_cast<std::int64_t>(n));
  }
  /// dw (two launches if the pixels are split), db, dx. Without examples dw and db are cleared.
  void backward(const DepthwiseConv2DOp& op, const Io<D>& io) const {
    const auto filters = static_cast<std::size_t>(op.filters());
    if (io.step.count == 0) {
      if (io.dw != nullptr)
        io.device.clear(reinterpret_cast<std::byte*>(io.dw),
                        (op.kernel_size() + (op.bias ? filters : 0)) * sizeof(float));
      return;
    }
    if (io.dw != nullptr) gradient_of_weights(op, io, filters);
    if (io.dx[0] == nullptr) return;
    const std::size_t n = io.step.count * op.in.size();
    io.device.launch(data_, Grid::over(n), io.dy, io.w, io.dx[0], static_cast<std::int64_t>(n));
  }

 private:
  void gradient_of_weights(const DepthwiseConv2DOp& op, const Io<D>& io,
                           std::size_t filters) const {
    float* const parts = cut_.parts == 1 ? io.dw : reinterpret_cast<float*>(io.scratch);
    const auto width = static_cast<unsigned>(width_), f = static_cast<unsigned>(filters);
    io.device.launch(weights_,
                     Grid{{(f + width - 1) / width, cut_.parts,
                           static_cast<unsigned>(op.kernel.height * op.kernel.width)},
                          {256, 1, 1}},
                     io.x[0], io.dy, parts, pixels_, cut_.each);
    if (cut_.parts > 1)
      io.device.launch(add_, Grid::over(op.kernel_size()), static_cast<const float*>(parts), io.dw,
                       static_cast<std::int64_t>(op.kernel_size()), static_cast<int>(cut_.parts));
    if (op.bias) db_(io.device, io.dy, io.dw + op.kernel_size(), io.scratch);
  }

  int width_ = 1;
  std::int64_t pixels_ = 0;
  std::size_t scratch_ = 0;
  RowParts cut_;
  CUfunction forward_ = nullptr, data_ = nullptr, weights_ = nullptr, add_ = nullptr;
  ColumnSums<Precision> db_;
};

}  // namespace detail::cuda

/// Keeps x for backward.
template <class Precision>
struct Kernel<DepthwiseConv2DOp, BasicCuda<Precision>>
    : PreparedKernel<DepthwiseConv2DOp, BasicCuda<Precision>,
                     detail::cuda::DepthwiseCalls<Precision>> {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true, skips_dw = true;
};

static_assert(HasKernel<DepthwiseConv2DOp, Cuda>);

}  // namespace lockstep
