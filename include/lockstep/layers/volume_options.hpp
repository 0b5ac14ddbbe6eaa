/// \file
/// Options of layers over volumes (depth, height, width, channels). One number, as `strides(2)`, is
/// that of all three axes.
#pragma once

#include <type_traits>

#include "lockstep/layers/options.hpp"

namespace lockstep {

/// Option created by `strides` with three numbers.
struct Strides3D {
  int depth = 1, height = 1, width = 1;
  bool operator==(const Strides3D&) const = default;
};
/// Step of a window over a volume: `strides(1, 2, 2)` for depth, height and width.
constexpr Strides3D strides(int depth, int height, int width) { return {depth, height, width}; }

/// Option created by `dilation` with three numbers.
struct Dilation3D {
  int depth = 1, height = 1, width = 1;
  bool operator==(const Dilation3D&) const = default;
};
/// Distance between the taps of a kernel over volumes: `dilation(1, 2, 2)` for depth, height and width.
constexpr Dilation3D dilation(int depth, int height, int width) { return {depth, height, width}; }

/// Option created by `kernel` with three numbers.
struct KernelSize3D {
  int depth = 1, height = 1, width = 1;
  bool operator==(const KernelSize3D&) const = default;
};
/// A kernel over volumes that is not a cube, depth before height before width:
/// `Conv3D<32, ls::kernel(1, 3, 3)>`.
constexpr KernelSize3D kernel(int depth, int height, int width) { return {depth, height, width}; }

namespace detail {

/// A kernel or pool size given as one number or as ls::kernel with three numbers. Zeros for two
/// numbers, which the layer reports.
constexpr KernelSize3D volume_size(int all) { return {all, all, all}; }
constexpr KernelSize3D volume_size(KernelSize3D size) { return size; }
constexpr KernelSize3D volume_size(KernelSize) { return {0, 0, 0}; }

/// The option with one number, Two, or with three, Three; `value` without one. Zeros for two
/// numbers, which the layer reports.
template <class Two, class Three, auto... Options>
constexpr Three volume_option(Three value) {
  value = option<Three, Options...>(value);
  if constexpr ((std::is_same_v<std::remove_cvref_t<decltype(Options)>, Two> || ...)) {
    const Two given = option<Two, Options...>(Two{});
    const int all = given.height == given.width ? given.height : 0;
    value = {all, all, all};
  }
  return value;
}

}  // namespace detail
}  // namespace lockstep
