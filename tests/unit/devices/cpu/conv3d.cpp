/// \file
/// Conv3D on the Cpu: the shared cases, precision, and the kinds of passes.
#include "lockstep/devices/cpu/conv3d.hpp"

#include "compare.hpp"
#include "unit/devices/conv3d.hpp"

TEST_CASE("the weight gradient of volumes does not need the gradient of the input") {
  const auto op = Conv3D<16, 3, same, strides(2)>::op(shape(5, 7, 6, 3));
  check_against_reference(op, 3, numbers(op, op.in.size(), op.weights(), 3), false);
}

TEST_CASE("convolutions of fifty more volumes agree with the reference") {
  Philox g(13);
  for (int i = 0; i < 50; ++i) {
    const Conv3DOp op = generated_volume_convolution(g);
    INFO(describe(op));
    const auto count = static_cast<std::size_t>(between(g, 1, 4));
    check_against_reference(op, count, numbers(op, op.in.size(), op.weights(), count));
  }
}

TEST_CASE("convolutions of generated volumes in bfloat16 agree with the reference") {
  need_bfloat16();
  Philox g(4);
  for (int i = 0; i < 50; ++i) {
    const Conv3DOp op = generated_volume_convolution(g);
    INFO(describe(op));
    const auto count = static_cast<std::size_t>(between(g, 1, 4));
    check_in_bfloat16(op, count, numbers(op, op.in.size(), op.weights(), count), op.kernel_size());
  }
}

TEST_CASE("a kernel over one slice is a convolution of images, for each slice") {
  const auto op = Conv3D<5, kernel(1, 3, 2), same, strides(1, 2, 1)>::op(shape(4, 6, 5, 3));
  const auto image = Conv2D<5, kernel(3, 2), same, strides(2, 1)>::op(shape(6, 5, 3));
  const Numbers n = numbers(op, op.in.size(), op.weights(), 2);
  const auto volumes = run<Cpu>(op, 2, n), images = run<Cpu>(image, 8, n);
  CHECK(relative_error(volumes.y, as<double>(images.y)) < tolerance);
  CHECK(relative_error(volumes.dx, as<double>(images.dx)) < tolerance);
  CHECK(relative_error(volumes.dw, as<double>(images.dw)) < tolerance);
}
