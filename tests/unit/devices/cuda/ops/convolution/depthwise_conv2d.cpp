/// \file
#include "lockstep/devices/cuda/ops/convolution/depthwise_conv2d.hpp"

#include "unit/devices/cuda/compare.hpp"

#include "unit/devices/depthwise_conv2d.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("a depthwise convolution with split sums agrees with the reference") {
  const DepthwiseConv2DOp op{shape(20, 20, 33), 1, {2, 1}, {1, 1}, {1, 1}, same, true};
  check_against_reference(op, 7, numbers(op, op.in.size(), weights_of(op), 7));
}
