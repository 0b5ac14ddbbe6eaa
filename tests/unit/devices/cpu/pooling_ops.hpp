/// \file
/// Generated pooling windows.
#pragma once

#include "compare.hpp"
#include "lockstep/layers/pooling2d.hpp"

namespace testing {

inline lockstep::Pooling2DWindow generated_window(lockstep::Philox& g) {
  for (;;) {
    lockstep::Pooling2DWindow window;
    window.in =
        lockstep::shape(between(g, 1, 14), between(g, 1, 14), one_of(g, 1, 2, 3, 4, 7, 8, 13, 32));
    window.pool = {between(g, 1, 4), between(g, 1, 4)};
    window.strides = {between(g, 1, 4), between(g, 1, 4)};
    window.padding = one_of(g, 0, 1) == 0 ? lockstep::valid : lockstep::same;
    if (window.rows().fits() && window.columns().fits()) return window;
  }
}

inline std::string describe(const lockstep::Pooling2DWindow& window) {
  const auto pair = [](int a, int b) { return std::to_string(a) + "x" + std::to_string(b); };
  return lockstep::to_string(window.in) + ", pool " + pair(window.pool.height, window.pool.width) +
         ", strides " + pair(window.strides.height, window.strides.width) +
         (window.padding == lockstep::same ? ", same" : ", valid");
}

}  // namespace testing
