/// \file
/// A block whose inner values are computed twice instead of kept.
#pragma once

#include "lockstep/model/sequential.hpp"

namespace lockstep {

/// Gradient checkpointing (Chen et al., 2016; `jax.checkpoint`, `torch.utils.checkpoint`): what the
/// block computes on the way to its output is not kept until backward; there the block runs forward
/// once more. The same bits, about a third more work, less memory: `summary` shows both. Random
/// layers draw the same numbers again; moving statistics are updated once. A block within such a
/// block belongs to the outer one. Ops are not fused across the block's ends.
/// \code
///   ls::Repeat<8, ls::Recompute<Next<16>>>
/// \endcode
template <class Block>
struct Recompute {
  using is_composite = void;
  using children = List<Block>;
  using ops = typename detail::OpsOf<Block>::type;
  static constexpr bool layers_ok = detail::layer_ok<Block>();
  template <class Walk>
  static constexpr detail::ValueId append(Walk& walk, detail::ValueId v) {
    const int outer = walk.enter_segment();
    const detail::ValueId out = walk.template add<Block>(v);
    walk.leave_segment(outer);
    return out;
  }

  static_assert(sizeof(detail::CheckLayer<Block>) > 0);
};

}  // namespace lockstep
