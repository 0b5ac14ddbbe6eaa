/// \file
/// Convolutions as implicit matrix products: functions that read the operands in place, without
/// im2col. Invariants: images are NHWC, kernels height x width x in x out; rows of a product are
/// pixels of the result, or weights. A product is that of one group: pointers begin at its first
/// channel and filter, CHANNELS and FILTERS are those of all groups.
#pragma once

#include <vector>

#include "lockstep/devices/cuda/program.hpp"
#include "lockstep/layers/convolution/conv2d.hpp"

namespace lockstep::detail::cuda {

/// The geometry of a convolution, as defines.
inline std::vector<Define> convolution_defines(const Conv2DOp& op) {
  const Shape out = op.out();
  return {{"IN_HEIGHT", op.in[0]},
          {"IN_WIDTH", op.in[1]},
          {"CHANNELS", op.in[2]},
          {"OUT_HEIGHT", out[0]},
          {"OUT_WIDTH", out[1]},
          {"FILTERS", op.filters},
          {"GROUP_CHANNELS", op.group_channels()},
          {"GROUP_FILTERS", op.group_filters()},
          {"KERNEL_HEIGHT", op.kernel.height},
          {"KERNEL_WIDTH", op.kernel.width},
          {"STRIDE_Y", op.strides.height},
          {"STRIDE_X", op.strides.width},
          {"DILATION_Y", op.dilation.height},
          {"DILATION_X", op.dilation.width},
          {"TOP", op.rows().before()},
          {"LEFT", op.columns().before()}};
}

/// y (pixels, filters) = x at the taps (pixels, taps x channels) * kernel (taps x channels,
/// filters).
inline constexpr char convolution_forward_text[] = R"cuda(
typedef float Right;
typedef A Out;
struct Row {
  i64 image;  // offset of the image
  int y, x;  // of the first tap
};
__device__ inline Row row(int m) {
  Row r;
  const int pixel = m / OUT_WIDTH;
  r.x = m % OUT_WIDTH * STRIDE_X - LEFT;
  r.y = pixel % OUT_HEIGHT * STRIDE_Y - TOP;
  r.image = (i64)(pixel / OUT_HEIGHT) * (IN_HEIGHT * IN_WIDTH * CHANNELS);
  return r;
}
__device__ inline float at_left(const A* p, Row r, int k) {
  const int tap = k / GROUP_CHANNELS;
  const int y = r.y + tap / KERNEL_WIDTH * DILATION_Y, x = r.x + tap % KERNEL_WIDTH * DILATION_X;
  if ((u32)y >= IN_HEIGHT || (u32)x >= IN_WIDTH) return 0;
  return get(p[r.image + ((y * IN_WIDTH + x) * CHANNELS + k % GROUP_CHANNELS)]);
}
__device__ inline float at_right(const float* p, int k, int n) { return p[k * FILTERS + n]; }
)cuda";

/// dx (pixels of x, channels) = dy at the taps (pixels, taps x filters) * kernel (taps x filters,
/// channels).
inline constexpr char convolution_dx_text[] = R"cuda(
typedef float Right;
typedef A Out;
struct Row {
  i64 image;
  int y, x;
};
__device__ inline Row row(int m) {
  Row r;
  const int pixel = m / IN_WIDTH;
  r.x = m % IN_WIDTH + LEFT;
  r.y = pixel % IN_HEIGHT + TOP;
  r.image = (i64)(pixel / IN_HEIGHT) * (OUT_HEIGHT * OUT_WIDTH * FILTERS);
  return r;
}
__device__ inline float at_left(const A* p, Row r, int k) {
  const int tap = k / GROUP_FILTERS;
  const int y = r.y - tap / KERNEL_WIDTH * DILATION_Y, x = r.x - tap % KERNEL_WIDTH * DILATION_X;
  if (y < 0 || x < 0 || y % STRIDE_Y != 0 || x % STRIDE_X != 0) return 0;
  const int down = y / STRIDE_Y, across = x / STRIDE_X;
  if (down >= OUT_HEIGHT || across >= OUT_WIDTH) return 0;
  return get(p[r.image + ((down * OUT_WIDTH + across) * FILTERS + k % GROUP_FILTERS)]);
}
__device__ inline float at_right(const float* p, int k, int n) {
  return p[(k / GROUP_FILTERS * GROUP_CHANNELS + n) * FILTERS + k % GROUP_FILTERS];
}
)cuda";

/// dw (taps x channels, filters) = x at the taps (taps x channels, pixels) * dy (pixels, filters).
inline constexpr char convolution_dw_text[] = R"cuda(
typedef A Right;
typedef float Out;
struct Row {
  int y, x, channel;
};
__device__ inline Row row(int m) {
  Row r;
  const int tap = m / GROUP_CHANNELS;
  r.channel = m % GROUP_CHANNELS;
  r.y = tap / KERNEL_WIDTH * DILATION_Y - TOP;
  r.x = tap % KERNEL_WIDTH * DILATION_X - LEFT;
  return r;
}
__device__ inline float at_left(const A* p, Row r, int k) {
  const int pixel = k / OUT_WIDTH;
  const int y = r.y + pixel % OUT_HEIGHT * STRIDE_Y, x = r.x + k % OUT_WIDTH * STRIDE_X;
  if ((u32)y >= IN_HEIGHT || (u32)x >= IN_WIDTH) return 0;
  return get(p[(i64)(pixel / OUT_HEIGHT) * (IN_HEIGHT * IN_WIDTH * CHANNELS) +
               ((y * IN_WIDTH + x) * CHANNELS + r.channel)]);
}
__device__ inline float at_right(const A* p, int k, int n) { return get(p[(i64)k * FILTERS + n]); }
)cuda";

}  // namespace lockstep::detail::cuda
