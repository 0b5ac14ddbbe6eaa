/// \file
/// A block whose activations are recomputed in backward instead of kept.
#pragma once

#include "lockstep/model/sequential.hpp"

namespace lockstep {

/// Gradient checkpointing (Chen et al., 2016; `jax.checkpoint`, `torch.utils.checkpoint`):
/// activations inside the block are not kept until backward, where the block's forward pass runs a
/// second time. Results are bit-identical; about a third more computation, less memory; `summary`
/// shows both. Random layers draw the same numbers again; running statistics are updated once.
/// Nested blocks belong to the outermost one. Ops are not fused across the edges of the block.
/// \code
///   kept     x [             ] y        the block's input and output
///   forward  x -> a -> b -> y           a, b are overwritten by later layers
///   backward x -> a -> b, then dy -> db -> da -> dx
/// \endcode
/// \code
///   ls::Repeat<8, ls::Recompute<Next<16>>>
/// \endcode
template <class Block>
struct Recompute : Sequential<Block> {
  template <class Walk>
  static constexpr detail::ValueId append(Walk& walk, detail::ValueId v) {
    const int outer = walk.enter_segment();
    const detail::ValueId out = walk.template add<Block>(v);
    walk.leave_segment(outer);
    return out;
  }
};

}  // namespace lockstep
