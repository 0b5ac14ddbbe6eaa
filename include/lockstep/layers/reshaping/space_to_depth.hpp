/// \file
/// Pixels as channels.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/reshaping/depth_to_space.hpp"
#include "lockstep/layers/reshaping/rearrangement.hpp"

namespace lockstep {

/// y[n, r, c, (i block + j) channels + k] = x[n, r block + i, c block + j, k], where `channels` are
/// those of x.
struct SpaceToDepthOp {
  static constexpr std::string_view members = "in block_size";
  Shape in;  // (height, width, channels)
  int block = 1;
  constexpr Shape out() const { return shape(in[0] / block, in[1] / block, in[2] * block * block); }
  constexpr Rearrangement rearrangement() const {
    return DepthToSpaceOp{out(), block}.rearrangement().transposed();
  }
  bool operator==(const SpaceToDepthOp&) const = default;
};

namespace detail {
template <int Block>
struct CheckSpaceToDepth {
  static_assert(Block > 0,
                "lockstep::SpaceToDepth: the block size must be at least 1; write SpaceToDepth<2>");
};
}  // namespace detail

/// TensorFlow's space_to_depth with channels last: each block of Block x Block pixels becomes one
/// pixel. Input (h, w, c), output (h / Block, w / Block, c Block^2), with the channels ordered as
/// (row in the block, column in the block, channel of x). Keras has no layer of this name.
/// \code
///   SpaceToDepth<2>      // (416, 416, 3) to (208, 208, 12)
/// \endcode
template <int Block>
struct SpaceToDepth {
  static constexpr std::string_view name = "space_to_depth";
  static constexpr int block = Block > 0 ? Block : 1;  // one error if it is not
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 3 || detail::always_false<SpaceToDepth>,
        "lockstep::SpaceToDepth: the input does not have height, width and channels; put it before "
        "Flatten");
    static_assert(In.rank != 3,
                  "lockstep::SpaceToDepth: height and width of the input are not multiples of the "
                  "block size; put ZeroPadding2D or Cropping2D before it");
  };
  static constexpr bool accepts(Shape in) {
    return in.rank == 3 && in[0] % block == 0 && in[1] % block == 0;
  }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr SpaceToDepthOp op(Shape in) { return {in, block}; }

  static_assert(sizeof(detail::CheckSpaceToDepth<Block>) > 0);
};

static_assert(Layer<SpaceToDepth<2>> && Rearranges<SpaceToDepthOp> &&
              SpaceToDepth<2>::op(shape(8, 10, 3)).out() == shape(4, 5, 12) &&
              !SpaceToDepth<2>::accepts(shape(8, 5, 6)));

}  // namespace lockstep
