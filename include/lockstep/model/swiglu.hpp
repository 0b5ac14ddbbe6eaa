/// \file
/// The gated layer of Llama's feed-forward blocks.
#pragma once

#include "lockstep/layers/activations/silu.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/merging/multiply.hpp"
#include "lockstep/model/parallel.hpp"

namespace lockstep {

/// y = silu(x W + b) (x V + c), element by element (Shazeer, "GLU Variants Improve Transformer",
/// 2020): a block of two Dense layers, `dense` with SiLU and `dense_1`, and a Multiply. Options:
/// those of Dense, for both, except an activation.
/// \code
///   struct FeedForward : ls::Sequential<ls::SwiGLU<2048, ls::no_bias>, ls::Dense<768, ls::no_bias>> {};
/// \endcode
template <int Units, auto... Options>
using SwiGLU = Parallel<Multiply, Dense<Units, silu, Options...>, Dense<Units, Options...>>;

}  // namespace lockstep
