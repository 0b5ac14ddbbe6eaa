/// \file
/// Pooling: generated windows and checks for each device. `Tested` comes from the device's
/// compare.hpp.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "lockstep/layers/layers.hpp"
#include "support/kernel_numbers.hpp"

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

template <class Tested, class Op>
void pools_generated_windows() {
  lockstep::Philox g(3);
  for (int i = 0; i < Tested::shapes; ++i) {
    const Op op{generated_window(g)};
    INFO(describe(op.window));
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    Tested::check(op, count, numbers(op, op.window.in.size(), 0, count));
  }
}

template <class Tested, class Layer>
void pools_whole_images() {
  lockstep::Philox g(9);
  for (int i = 0; i < Tested::shapes; ++i) {
    const auto op = Layer::op(lockstep::shape(between(g, 1, 20), between(g, 1, 20),
                                              one_of(g, 1, 2, 3, 8, 13, 32, 33, 70)));
    INFO(to_string(op.in));
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    Tested::check(op, count, numbers(op, op.in.size(), 0, count));
  }
}

template <class Tested>
void gives_the_gradient_to_the_first_maximum() {
  [[maybe_unused]] typename Tested::Machine machine;
  for (const int channels : {1, 4, 8, 11}) {
    const auto op = lockstep::MaxPooling2D<2>::op(lockstep::shape(2, 4, channels));
    Numbers n = numbers(op, op.window.in.size(), 0, 1);
    const auto c = static_cast<std::size_t>(channels);
    n.x.assign(n.x.size(), 2.0f);
    const auto result = run(op, 1, n, Tested::device());
    for (std::size_t i = 0; i < result.dx.size(); ++i) {
      const std::size_t pixel = i / c,
                        k = i % c;  // 2 x 4 image; the windows begin at pixels 0 and 2
      const float expected = pixel == 0 ? n.dy[k] : pixel == 2 ? n.dy[c + k] : 0.0f;
      CHECK(result.dx[i] == expected);
    }
  }
}

template <class Tested>
void pools_negative_numbers_with_padding() {
  const auto op =
      lockstep::MaxPooling2D<3, lockstep::same, lockstep::strides(2)>::op(lockstep::shape(5, 6, 5));
  Numbers n = numbers(op, op.window.in.size(), 0, 2);
  for (float& v : n.x) v = -1.0f - v * v;
  Tested::check(op, 2, n);
}

template <class Tested>
void keeps_the_winner_of_many_taps() {
  constexpr auto op = lockstep::MaxPooling2D<17>::op(lockstep::shape(17, 34, 5));
  static_assert(lockstep::Kernel<lockstep::MaxPooling2DOp, typename Tested::Device>::saved(op) ==
                2 * 5 * 4);
  Tested::check(op, 2, numbers(op, op.window.in.size(), 0, 2));
}

}  // namespace testing
