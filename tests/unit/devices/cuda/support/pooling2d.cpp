/// \file
#include "support/pooling.hpp"
#include "support/volumes.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <cmath>
#include <limits>

#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

TEMPLATE_TEST_CASE("pooling of generated windows agrees with the reference", "", MaxPooling2DOp,
                   AveragePooling2DOp) {
  pools_generated_windows<Tested, TestType>();
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

TEMPLATE_TEST_CASE("pooling of generated volumes agrees with the reference", "", MaxPooling3DOp,
                   AveragePooling3DOp) {
  Philox g(8);
  for (int i = 0; i < generated_shapes / 2; ++i) {
    const TestType op{generated_volume_window(g)};
    INFO(describe(op.window));
    check_against_reference(op, 3, numbers(op, op.window.in.size(), 0, 3));
  }
}

TEMPLATE_TEST_CASE("global pooling of volumes agrees with the reference", "",
                   GlobalAveragePooling3D, GlobalMaxPooling3D) {
  const auto op = TestType::op(shape(3, 4, 5, 33));
  check_against_reference(op, 3, numbers(op, op.in.size(), 0, 3));
}

TEST_CASE("the first of equal maxima gets the whole gradient, in every channel") {
  gives_the_gradient_to_the_first_maximum<Tested>();
}

TEST_CASE("padding never wins a maximum, even among negative numbers") {
  pools_negative_numbers_with_padding<Tested>();
}

TEST_CASE("a window of more than 256 taps keeps its winner") {
  keeps_the_winner_of_many_taps<Tested>();
}

TEST_CASE("the mean of a window of thousands is exact enough") {
  const auto op = AveragePooling2D<40, strides(30), same>::op(shape(60, 50, 2));
  Numbers n = numbers(op, op.window.in.size(), 0, 1);
  for (float& v : n.x) v += 100.0f;
  check_against_reference(op, 1, n);
}

TEMPLATE_TEST_CASE("global pooling of generated shapes agrees with the reference", "",
                   GlobalAveragePooling2D, GlobalMaxPooling2D) {
  pools_whole_images<Tested, TestType>();
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
