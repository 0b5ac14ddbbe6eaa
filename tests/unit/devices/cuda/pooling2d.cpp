/// \file
#include "compare.hpp"
#include "lockstep/layers/layers.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <cmath>
#include <limits>

using namespace lockstep;
using namespace testing;

namespace {

Pooling2DWindow generated_window(Philox& g) {
  for (;;) {
    Pooling2DWindow window;
    window.in = shape(between(g, 1, 14), between(g, 1, 14), one_of(g, 1, 2, 3, 4, 7, 8, 13, 32));
    window.pool = {between(g, 1, 4), between(g, 1, 4)};
    window.strides = {between(g, 1, 4), between(g, 1, 4)};
    window.padding = one_of(g, 0, 1) == 0 ? valid : same;
    if (window.rows().fits() && window.columns().fits()) return window;
  }
}
std::string describe(const Pooling2DWindow& window) {
  const auto pair = [](int a, int b) { return std::to_string(a) + "x" + std::to_string(b); };
  return to_string(window.in) + ", pool " + pair(window.pool.height, window.pool.width) +
         ", strides " + pair(window.strides.height, window.strides.width) +
         (window.padding == same ? ", same" : ", valid");
}

}  // namespace

TEMPLATE_TEST_CASE("pooling of generated windows agrees with the reference", "", MaxPooling2DOp,
                   AveragePooling2DOp) {
  Philox g(3);
  for (int i = 0; i < generated_shapes; ++i) {
    const TestType op{generated_window(g)};
    INFO(describe(op.window));
    const auto count = static_cast<std::size_t>(between(g, 0, 5));
    check_against_reference(op, count, numbers(op, op.window.in.size(), 0, count));
  }
}

TEMPLATE_TEST_CASE("pooling of the windows that models use agrees with the reference", "",
                   MaxPooling2D<>, (MaxPooling2D<3, strides(2), same>),
                   (MaxPooling2D<3, strides(1)>), AveragePooling2D<>,
                   (AveragePooling2D<3, strides(1), same>), AveragePooling2D<8>) {
  const auto op = TestType::op(shape(24, 17, 33));
  check_against_reference(op, 3, numbers(op, op.window.in.size(), 0, 3));
}

TEMPLATE_TEST_CASE("pooling over steps agrees with the reference", "", MaxPooling1D<>,
                   (AveragePooling1D<3, same>), GlobalMaxPooling1D, GlobalAveragePooling1D) {
  const auto op = TestType::op(shape(19, 6));
  check_against_reference(op, 4, numbers(op, 19 * 6, 0, 4));
}

TEST_CASE("of equal maxima the first gets the whole gradient, in every channel") {
  TestGpu gpu;
  for (const int channels : {1, 4, 11}) {
    const auto op = MaxPooling2D<2>::op(shape(2, 4, channels));
    Numbers n = numbers(op, op.window.in.size(), 0, 1);
    const auto c = static_cast<std::size_t>(channels);
    n.x.assign(n.x.size(), 2.0f);
    const auto result = run<Cuda>(op, 1, n);
    for (std::size_t i = 0; i < result.dx.size(); ++i) {
      const std::size_t pixel = i / c,
                        k = i % c;  // of the 2 x 4 image; the windows begin at pixels 0 and 2
      const float expected = pixel == 0 ? n.dy[k] : pixel == 2 ? n.dy[c + k] : 0.0f;
      CHECK(result.dx[i] == expected);
    }
  }
}

TEST_CASE("padding never wins a maximum, also among negative numbers") {
  const auto op = MaxPooling2D<3, same, strides(2)>::op(shape(5, 6, 5));
  Numbers n = numbers(op, op.window.in.size(), 0, 2);
  for (float& v : n.x) v = -1.0f - v * v;
  check_against_reference(op, 2, n);
}

TEST_CASE("a window of more than 256 taps keeps its winner") {
  constexpr auto op = MaxPooling2D<17>::op(shape(17, 34, 5));
  static_assert(Kernel<MaxPooling2DOp, Cuda>::saved(op) == 2 * 5 * 4);
  check_against_reference(op, 2, numbers(op, op.window.in.size(), 0, 2));
}

TEST_CASE("the mean of a window of thousands is exact enough") {
  const auto op = AveragePooling2D<40, strides(30), same>::op(shape(60, 50, 2));
  Numbers n = numbers(op, op.window.in.size(), 0, 1);
  for (float& v : n.x) v += 100.0f;
  check_against_reference(op, 1, n);
}

TEMPLATE_TEST_CASE("pooling of whole images of generated shapes agrees with the reference", "",
                   GlobalAveragePooling2D, GlobalMaxPooling2D) {
  Philox g(9);
  for (int i = 0; i < generated_shapes; ++i) {
    const auto op = TestType::op(
        shape(between(g, 1, 20), between(g, 1, 20), one_of(g, 1, 2, 3, 8, 13, 32, 33, 70)));
    INFO(to_string(op.in));
    const auto count = static_cast<std::size_t>(between(g, 0, 5));
    check_against_reference(op, count, numbers(op, op.in.size(), 0, count));
  }
}

TEST_CASE("the mean of a whole image of many pixels is exact enough") {
  const auto op = GlobalAveragePooling2D::op(shape(200, 100, 33));
  Numbers n = numbers(op, op.in.size(), 0, 1);
  for (float& v : n.x) v += 100.0f;
  check_against_reference(op, 1, n);
}

TEST_CASE("equal maxima over a whole image share the gradient") {
  TestGpu gpu;
  const auto result =
      run<Cuda>(GlobalMaxPooling2D::op(shape(2, 2, 1)), 1, Numbers{{5, 1, 5, 5}, {}, {6}, {}});
  CHECK(result.y == std::vector<float>{5});
  CHECK(result.dx == std::vector<float>{2, 0, 2, 2});
}

TEST_CASE("the maximum of an image with NaN is NaN, and so is its gradient") {
  TestGpu gpu;
  for (std::size_t at = 0; at < 4; ++at) {
    Numbers n{{-1, 2, -3, 4}, {}, {6}, {}};
    n.x[at] = std::numeric_limits<float>::quiet_NaN();
    const auto result = run<Cuda>(GlobalMaxPooling2D::op(shape(2, 2, 1)), 1, n);
    CHECK(std::isnan(result.y[0]));
    for (const float v : result.dx) CHECK(std::isnan(v));
  }
}
