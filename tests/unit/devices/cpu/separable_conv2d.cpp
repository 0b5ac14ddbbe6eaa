/// \file
/// SeparableConv2D on the Cpu, compared with the reference.
#include "lockstep/layers/convolution/separable_conv2d.hpp"

#include "conv2d_ops.hpp"

using namespace lockstep;
using namespace testing;

namespace {

std::size_t weights_of(const SeparableConv2DOp& op) {
  return op.depthwise.kernel_size() + testing::weights_of(op.pointwise());
}

}  // namespace

TEST_CASE("separable convolutions of generated shapes agree with the reference") {
  Philox g(33);
  for (int i = 0; i < generated_shapes; ++i) {
    const Conv2DOp c = generated_convolution(g);
    const SeparableConv2DOp op{
        {c.in, one_of(g, 1, 1, 2), c.kernel, c.strides, c.dilation, c.padding, false},
        c.filters,
        c.bias};
    INFO(describe(c) << ", multiplier " << op.depthwise.multiplier);
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    check_against_reference(op, count, numbers(op, c.in.size(), weights_of(op), count));
  }
}

TEST_CASE(
    "a separable convolution gives the same weight gradient without the gradient of its input") {
  const auto op = SeparableConv2D<16, 3, same, depth_multiplier(2)>::op(shape(9, 7, 5));
  check_against_reference(op, 3, numbers(op, 9 * 7 * 5, weights_of(op), 3), false);
}

TEST_CASE("a separable convolution without examples gives a weight gradient of zero") {
  const auto op = SeparableConv2D<8, 3>::op(shape(5, 5, 4));
  const auto result = run(op, 0, numbers(op, 100, weights_of(op), 0), Cpu{});
  CHECK(result.dw == std::vector<float>(weights_of(op), 0.0f));
}
