/// \file
/// DepthwiseConv2D on the Cpu, in addition to the shared cases.
#include "lockstep/layers/convolution/depthwise_conv2d.hpp"

#include "compare.hpp"

#include "unit/devices/depthwise_conv2d.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("depthwise convolutions agree with the reference for any number of channels") {
  for (const int channels : {1, 7, 15, 16, 17, 24, 33, 64, 100})
    for (const int multiplier : {1, 2}) {
      const DepthwiseConv2DOp op{shape(9, 8, channels), multiplier, {3, 3}, {1, 1}, {1, 1}, same};
      INFO(channels << " channels, multiplier " << multiplier);
      check_against_reference(op, 3, numbers(op, op.in.size(), weights_of(op), 3));
    }
}

TEST_CASE(
    "a depthwise convolution gives the same weight gradient without the gradient of its input") {
  for (const int multiplier : {1, 2}) {
    const DepthwiseConv2DOp op{shape(9, 7, 5), multiplier, {3, 3}, {2, 1}, {1, 1}, same};
    check_against_reference(op, 3, numbers(op, op.in.size(), weights_of(op), 3), false);
  }
}
