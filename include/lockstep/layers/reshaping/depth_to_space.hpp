/// \file
/// Channels as pixels.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/reshaping/rearrangement.hpp"

namespace lockstep {

/// y[n, r block + i, c block + j, k] = x[n, r, c, (i block + j) channels + k], where `channels` are
/// those of y.
struct DepthToSpaceOp {
  static constexpr std::string_view members = "in block_size";
  Shape in;  // (height, width, channels)
  int block = 1;
  constexpr Shape out() const {
    return shape(in[0] * block, in[1] * block, in[2] / (block * block));
  }
  constexpr Rearrangement rearrangement() const {
    const int c = in[2], k = c / (block * block);
    return Rearrangement::of({{in[0], in[0], 0, in[1] * c},
                              {block, block, 0, block * k},
                              {in[1], in[1], 0, c},
                              {block, block, 0, k},
                              {k, k, 0, 1}});
  }
  bool operator==(const DepthToSpaceOp&) const = default;
};

namespace detail {
template <int Block>
struct CheckDepthToSpace {
  static_assert(Block > 0,
                "lockstep::DepthToSpace: the block size must be at least 1; write DepthToSpace<2>");
};
}  // namespace detail

/// TensorFlow's depth_to_space with channels last, the inverse of SpaceToDepth: each pixel becomes
/// a block of Block x Block pixels. Input (h, w, c), output (h Block, w Block, c / Block^2). The
/// channels of x are ordered as (row in the block, column in the block, channel of y), ONNX' mode
/// DCR; in PyTorch's pixel_shuffle the channel of y is first. Keras has no layer of this name.
/// \code
///   // sub-pixel convolution (Shi et al., 2016)
///   Conv2D<3 * 2 * 2, 3, ls::same>, DepthToSpace<2>
/// \endcode
template <int Block>
struct DepthToSpace {
  static constexpr std::string_view name = "depth_to_space";
  static constexpr int block = Block > 0 ? Block : 1;  // one error if it is not
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 3 || detail::always_false<DepthToSpace>,
        "lockstep::DepthToSpace: the input does not have height, width and channels; put it before "
        "Flatten");
    static_assert(In.rank != 3,
                  "lockstep::DepthToSpace: the channels of the input are not a multiple of the "
                  "pixels of a block; use channels * Block * Block filters before it");
  };
  static constexpr bool accepts(Shape in) { return in.rank == 3 && in[2] % (block * block) == 0; }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr DepthToSpaceOp op(Shape in) { return {in, block}; }

  static_assert(sizeof(detail::CheckDepthToSpace<Block>) > 0);
};

static_assert(Layer<DepthToSpace<2>> && Rearranges<DepthToSpaceOp> &&
              DepthToSpace<2>::op(shape(4, 5, 12)).out() == shape(8, 10, 3) &&
              !DepthToSpace<2>::accepts(shape(4, 5, 6)));

}  // namespace lockstep
