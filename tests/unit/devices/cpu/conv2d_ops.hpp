/// \file
/// Generated convolutions.
#pragma once

#include <string>

#include "compare.hpp"
#include "lockstep/layers/conv2d.hpp"

namespace testing {

inline lockstep::Conv2DOp generated_convolution(lockstep::Philox& g) {
  for (;;) {
    lockstep::Conv2DOp op;
    op.in = lockstep::shape(between(g, 1, 13), between(g, 1, 13), one_of(g, 1, 2, 3, 4, 5, 8, 16));
    op.filters = one_of(g, 1, 3, 8, 10, 16, 24);
    op.kernel = {between(g, 1, 5), between(g, 1, 5)};
    op.strides = {between(g, 1, 3), between(g, 1, 3)};
    op.dilation = {between(g, 1, 2), between(g, 1, 2)};
    op.padding = one_of(g, 0, 1) == 0 ? lockstep::valid : lockstep::same;
    op.bias = one_of(g, 0, 1) == 0;
    if (op.rows().fits() && op.columns().fits()) return op;
  }
}

inline std::string describe(const lockstep::Conv2DOp& op) {
  const auto pair = [](int a, int b) { return std::to_string(a) + "x" + std::to_string(b); };
  return lockstep::to_string(op.in) + " -> " + lockstep::to_string(op.out()) + ", kernel " +
         pair(op.kernel.height, op.kernel.width) + ", strides " +
         pair(op.strides.height, op.strides.width) + ", dilation " +
         pair(op.dilation.height, op.dilation.width) +
         (op.padding == lockstep::same ? ", same" : ", valid") + (op.bias ? ", bias" : "");
}

inline std::size_t weights_of(const lockstep::Conv2DOp& op) {
  return op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.filters) : 0);
}

}  // namespace testing
