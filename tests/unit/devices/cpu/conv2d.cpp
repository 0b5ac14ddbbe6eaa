/// \file
/// Conv2D on the Cpu, in addition to the cases shared by all devices.
#include "conv2d_3x3_ops.hpp"
#include "lockstep/devices/cpu/fused/conv_relu.hpp"

#include "unit/devices/conv2d.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("a convolution gives the same weight gradient without the gradient of its input") {
  for (const auto& op :
       {Conv2D<8, 3, same>::op(shape(9, 7, 1)), Conv2D<16, 3>::op(shape(9, 7, 16))})
    check_against_reference(op, 3, numbers(op, op.in.size(), weights_of(op), 3), false);
}

TEST_CASE("the first convolution of the tutorials agrees with the reference at batch 64") {
  const auto op = Conv2D<32, 3>::op(shape(28, 28, 1));
  check_against_reference(op, 64, numbers(op, op.in.size(), weights_of(op), 64), false);
}

TEST_CASE("strided 1x1 convolutions agree with the reference for any number of channels") {
  for (const int channels : {3, 5, 8, 12, 16, 20, 32})
    for (const int filters : {3, 8, 10, 16}) {
      const Conv2DOp op{shape(10, 12, channels), filters, {1, 1}, {2, 2}, {1, 1}, same, true};
      INFO(describe(op));
      check_against_reference(op, 2, numbers(op, op.in.size(), weights_of(op), 2));
    }
}

TEST_CASE("3x3 convolutions of whole vectors agree with the reference, with and without ReLU") {
  Philox g(3);
  for (int i = 0; i < generated_shapes; ++i) {
    const Conv2DOp op = generated_3x3(g, 4);
    INFO(describe(op));
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    Numbers n = numbers(op, op.in.size(), weights_of(op), count);
    const bool want_dx = i % 4 != 0;
    check_against_reference(op, count, n, want_dx);
    const auto conv = run<Reference<double>>(op, count, n);
    const auto rectified =
        run<Reference<double>>(ReLU::op(op.out()), count, Numbers{as<float>(conv.y), {}, n.dy, {}});
    const ConvReLUOp fused{op, ReLU::op(op.out())};
    const auto mine = run(fused, count, n, Cpu{.threads = 2}, want_dx);
    n.dy = as<float>(rectified.dx);
    auto expected = run<Reference<double>>(op, count, n, {}, want_dx);
    expected.y = rectified.y;
    check_close(mine, expected);
  }
}

TEST_CASE("grouped convolutions agree with the reference for any size of a group") {
  for (const int channels : {1, 3, 4, 16, 17})
    for (const int filters : {1, 3, 4, 16, 17})
      for (const int size : {1, 3}) {
        const Conv2DOp op{
            shape(7, 9, 3 * channels), 3 * filters, {size, size}, {2, 1}, {1, 1}, same, true, 3};
        INFO(describe(op));
        check_against_reference(op, 2, numbers(op, op.in.size(), weights_of(op), 2));
      }
}

TEST_CASE("a grouped convolution with a ReLU agrees with the two") {
  Philox g(62);
  for (int i = 0; i < generated_shapes; ++i) {
    const Conv2DOp op = generated_grouped(g);
    INFO(describe(op));
    Numbers n = numbers(op, op.in.size(), weights_of(op), 3);
    const auto conv = run<Reference<double>>(op, 3, n);
    const auto rectified =
        run<Reference<double>>(ReLU::op(op.out()), 3, Numbers{as<float>(conv.y), {}, n.dy, {}});
    const auto mine = run(ConvReLUOp{op, ReLU::op(op.out())}, 3, n, Cpu{.threads = 2});
    n.dy = as<float>(rectified.dx);
    auto expected = run<Reference<double>>(op, 3, n);
    expected.y = rectified.y;
    check_close(mine, expected);
  }
}

TEST_CASE("a 3x3 convolution without examples gives a weight gradient of zero") {
  const auto op = Conv2D<16, 3, same>::op(shape(8, 8, 16));
  const auto result = run(op, 0, numbers(op, op.in.size(), weights_of(op), 0), Cpu{});
  CHECK(result.dw == std::vector<float>(weights_of(op), 0.0f));
}
