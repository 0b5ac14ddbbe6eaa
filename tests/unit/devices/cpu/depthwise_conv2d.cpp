/// \file
#include "lockstep/layers/depthwise_conv2d.hpp"

#include "conv2d_ops.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("depthwise convolutions of generated shapes agree with the reference") {
  Philox g(31);
  for (int i = 0; i < generated_shapes; ++i) {
    const DepthwiseConv2DOp op = depthwise(generated_convolution(g), one_of(g, 1, 1, 1, 2, 3));
    INFO(to_string(op.in) << " -> " << to_string(op.out()) << ", kernel " << op.kernel.height << "x"
                          << op.kernel.width << ", strides " << op.strides.height << "x"
                          << op.strides.width << ", dilation " << op.dilation.height << "x"
                          << op.dilation.width);
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    check_against_reference(op, count, numbers(op, op.in.size(), weights_of(op), count));
  }
}

TEST_CASE("depthwise convolutions agree with the reference whatever the number of channels") {
  for (const int channels : {1, 7, 15, 16, 17, 24, 33, 64, 100})
    for (const int multiplier : {1, 2}) {
      const DepthwiseConv2DOp op{shape(9, 8, channels), multiplier, {3, 3}, {1, 1}, {1, 1}, same};
      INFO(channels << " channels, multiplier " << multiplier);
      check_against_reference(op, 3, numbers(op, op.in.size(), weights_of(op), 3));
    }
}

TEST_CASE(
    "a depthwise convolution has the same weight gradient when nobody wants that of its input") {
  for (const int multiplier : {1, 2}) {
    const DepthwiseConv2DOp op{shape(9, 7, 5), multiplier, {3, 3}, {2, 1}, {1, 1}, same};
    check_against_reference(op, 3, numbers(op, op.in.size(), weights_of(op), 3), false);
  }
}

TEST_CASE("a depthwise convolution without examples gives a weight gradient of zero") {
  for (const int multiplier : {1, 2}) {
    const DepthwiseConv2DOp op{shape(5, 5, 4), multiplier, {3, 3}, {1, 1}, {1, 1}, valid};
    const auto result = run(op, 0, numbers(op, op.in.size(), weights_of(op), 0), Cpu{});
    CHECK(result.dw == std::vector<float>(weights_of(op), 0.0f));
  }
}
