/// \file
#include "lockstep/devices/cuda/ops/depthwise_conv2d.hpp"

#include "support/convolutions.hpp"
#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("depthwise convolutions of generated shapes agree with the reference") {
  Philox g(31);
  for (int i = 0; i < generated_shapes; ++i) {
    const Conv2DOp like = generated_convolution(g);
    const DepthwiseConv2DOp op = depthwise(like, one_of(g, 1, 1, 1, 2, 3));
    INFO("depthwise, multiplier " << op.multiplier << ": " << describe(like));
    const auto count = static_cast<std::size_t>(between(g, 0, 5));
    check_against_reference(op, count, numbers(op, op.in.size(), weights_of(op), count));
  }
}

TEST_CASE("a depthwise convolution of many pixels, whose sums are cut, agrees") {
  const DepthwiseConv2DOp op{shape(20, 20, 33), 1, {2, 1}, {1, 1}, {1, 1}, same, true};
  check_against_reference(op, 7, numbers(op, op.in.size(), weights_of(op), 7));
}

TEST_CASE("a depthwise convolution without examples gives a weight gradient of zero") {
  TestGpu gpu;
  const DepthwiseConv2DOp op{shape(5, 5, 4), 2, {3, 3}, {1, 1}, {1, 1}, valid, true};
  const auto result = run<Cuda>(op, 0, numbers(op, op.in.size(), weights_of(op), 0));
  CHECK(result.dw == std::vector<float>(weights_of(op), 0.0f));
}
