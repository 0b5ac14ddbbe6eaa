/// \file
/// Convolutions as implicit matrix products: functions that read the operands in place, without
/// im2col. Invariants: images are NHWC, kernels height x width x in x out, or volumes NDHWC and kernels
/// depth x height x width x in x out, if VOLUMES is defined; rows of a product are
/// pixels of the result, or weights. A product is that of one group: pointers begin at its first
/// channel and filter, CHANNELS and FILTERS are those of all groups.
#pragma once

#include <vector>

#include "lockstep/devices/cuda/program.hpp"
#include "lockstep/devices/cuda/support/any_convolution.hpp"

namespace lockstep::detail::cuda {

/// The geometry of a convolution, as defines.
inline std::vector<Define> convolution_defines(const AnyConvolution& op) {
  const Shape out = op.out();
  std::vector<Define> defines{{"IN_HEIGHT", op.in[1]},
                              {"IN_WIDTH", op.in[2]},
                              {"CHANNELS", op.in[3]},
                              {"OUT_HEIGHT", out[1]},
                              {"OUT_WIDTH", out[2]},
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
  if (!op.over_images)
    for (const Define& d :
         {Define("VOLUMES", 1), Define("IN_DEPTH", op.in[0]), Define("OUT_DEPTH", out[0]),
          Define("STRIDE_Z", op.strides.depth), Define("DILATION_Z", op.dilation.depth),
          Define("FRONT", op.depths().before())})
      defines.push_back(d);
  return defines;
}

/// y (pixels, filters) = x at the taps (pixels, taps x channels) * kernel (taps x channels,
/// filters).
inline constexpr char convolution_forward_text[] = R"cuda(
typedef float Right;
typedef A Out;
struct Row {
  i64 image;  // offset of the image, or of the volume
#ifdef VOLUMES
  int z;
#endif
  int y, x;  // of the first tap
};
__device__ inline Row row(int m) {
  Row r;
  const int pixel = m / OUT_WIDTH;
  r.x = m % OUT_WIDTH * STRIDE_X - LEFT;
  r.y = pixel % OUT_HEIGHT * STRIDE_Y - TOP;
#ifdef VOLUMES
  const int slice = pixel / OUT_HEIGHT;
  r.z = slice % OUT_DEPTH * STRIDE_Z - FRONT;
  r.image = (i64)(slice / OUT_DEPTH) * ((i64)IN_DEPTH * IN_HEIGHT * IN_WIDTH * CHANNELS);
#else
  r.image = (i64)(pixel / OUT_HEIGHT) * (IN_HEIGHT * IN_WIDTH * CHANNELS);
#endif
  return r;
}
__device__ inline float at_left(const A* p, Row r, int k) {
#ifdef VOLUMES
  const int all = k / GROUP_CHANNELS, tap = all % (KERNEL_HEIGHT * KERNEL_WIDTH);
  const int z = r.z + all / (KERNEL_HEIGHT * KERNEL_WIDTH) * DILATION_Z;
  if ((u32)z >= IN_DEPTH) return 0;
  r.image += (i64)z * (IN_HEIGHT * IN_WIDTH * CHANNELS);
#else
  const int tap = k / GROUP_CHANNELS;
#endif
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
#ifdef VOLUMES
  int z;
#endif
  int y, x;
};
__device__ inline Row row(int m) {
  Row r;
  const int pixel = m / IN_WIDTH;
  r.x = m % IN_WIDTH + LEFT;
  r.y = pixel % IN_HEIGHT + TOP;
#ifdef VOLUMES
  const int slice = pixel / IN_HEIGHT;
  r.z = slice % IN_DEPTH + FRONT;
  r.image = (i64)(slice / IN_DEPTH) * ((i64)OUT_DEPTH * OUT_HEIGHT * OUT_WIDTH * FILTERS);
#else
  r.image = (i64)(pixel / IN_HEIGHT) * (OUT_HEIGHT * OUT_WIDTH * FILTERS);
#endif
  return r;
}
__device__ inline float at_left(const A* p, Row r, int k) {
#ifdef VOLUMES
  const int all = k / GROUP_FILTERS, tap = all % (KERNEL_HEIGHT * KERNEL_WIDTH);
  const int z = r.z - all / (KERNEL_HEIGHT * KERNEL_WIDTH) * DILATION_Z;
  if (z < 0 || z % STRIDE_Z != 0 || z / STRIDE_Z >= OUT_DEPTH) return 0;
  r.image += (i64)(z / STRIDE_Z) * (OUT_HEIGHT * OUT_WIDTH * FILTERS);
#else
  const int tap = k / GROUP_FILTERS;
#endif
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
#ifdef VOLUMES
  int z;
#endif
  int y, x, channel;
};
__device__ inline Row row(int m) {
  Row r;
#ifdef VOLUMES
  const int all = m / GROUP_CHANNELS, tap = all % (KERNEL_HEIGHT * KERNEL_WIDTH);
  r.z = all / (KERNEL_HEIGHT * KERNEL_WIDTH) * DILATION_Z - FRONT;
#else
  const int tap = m / GROUP_CHANNELS;
#endif
  r.channel = m % GROUP_CHANNELS;
  r.y = tap / KERNEL_WIDTH * DILATION_Y - TOP;
  r.x = tap % KERNEL_WIDTH * DILATION_X - LEFT;
  return r;
}
__device__ inline float at_left(const A* p, Row r, int k) {
  const int pixel = k / OUT_WIDTH;
  const int y = r.y + pixel % OUT_HEIGHT * STRIDE_Y, x = r.x + k % OUT_WIDTH * STRIDE_X;
  if ((u32)y >= IN_HEIGHT || (u32)x >= IN_WIDTH) return 0;
#ifdef VOLUMES
  const int slice = pixel / OUT_HEIGHT, z = r.z + slice % OUT_DEPTH * STRIDE_Z;
  if ((u32)z >= IN_DEPTH) return 0;
  p += ((i64)(slice / OUT_DEPTH) * IN_DEPTH + z) * (IN_HEIGHT * IN_WIDTH * CHANNELS);
  return get(p[(y * IN_WIDTH + x) * CHANNELS + r.channel]);
#else
  return get(p[(i64)(pixel / OUT_HEIGHT) * (IN_HEIGHT * IN_WIDTH * CHANNELS) +
               ((y * IN_WIDTH + x) * CHANNELS + r.channel)]);
#endif
}
__device__ inline float at_right(const A* p, int k, int n) { return get(p[(i64)k * FILTERS + n]); }
)cuda";

}  // namespace lockstep::detail::cuda
