/// \file
/// PositionEmbedding of one more step of a sequence, in inference.
#pragma once

#include <cstddef>

#include "lockstep/core/shape.hpp"

namespace lockstep {

/// y[u] = x[u] + embeddings[p, u], where p, the position of the step, is the ordinal of the example.
struct PositionStepOp {
  Shape in;  // (1, features)
  int positions = 1;
  constexpr Shape out() const { return in; }
  constexpr std::size_t weights() const {
    return static_cast<std::size_t>(positions) * static_cast<std::size_t>(in[1]);
  }
  bool operator==(const PositionStepOp&) const = default;
};

}  // namespace lockstep
