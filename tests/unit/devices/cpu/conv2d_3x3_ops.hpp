/// \file
/// Generated 3 x 3 convolutions to which Winograd's transforms apply.
#pragma once

#include <cstddef>
#include <vector>

#include "conv2d_ops.hpp"
#include "lockstep/devices/cpu/lanes.hpp"

namespace testing {

/// Images with sides of `least` to 13 pixels.
inline lockstep::Conv2DOp generated_3x3(lockstep::Philox& g, int least = 1) {
  for (;;) {
    lockstep::Conv2DOp op;
    op.in =
        lockstep::shape(between(g, least, 13), between(g, least, 13), one_of(g, 16, 32, 48, 64));
    op.filters = one_of(g, 16, 32, 48, 64, 80, 128);
    op.kernel = {3, 3};
    op.padding = one_of(g, 0, 1) == 0 ? lockstep::valid : lockstep::same;
    op.bias = one_of(g, 0, 1) == 0;
    if (op.rows().fits() && op.columns().fits()) return op;
  }
}

/// The vector lengths of the processor, in bytes.
inline std::vector<std::size_t> lengths_of_vectors() {
  using namespace lockstep::detail;
  if (!has_vectors()) return {};
  if (has_wide_vectors()) return {vector_bytes, wide_vector_bytes};
  return {vector_bytes};
}

}  // namespace testing
