/// \file
#include "lockstep/layers/conv2d_transpose.hpp"

#include "conv2d_ops.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("transposed convolutions of generated shapes agree with the reference") {
  Philox g(34);
  for (int i = 0; i < generated_shapes; ++i) {
    const Conv2DTransposeOp op = generated_transposed(g);
    INFO("transposed: " << describe(op.convolution()));
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    check_against_reference(op, count, numbers(op, op.in.size(), weights_of(op), count));
  }
}

TEST_CASE("transposed convolutions that threads share agree with the reference") {
  for (const auto& op : {Conv2DTranspose<16, 3, same, strides(2)>::op(shape(16, 16, 24)),
                         Conv2DTranspose<3, 4, same, strides(2)>::op(shape(16, 16, 16)),
                         Conv2DTranspose<1, 5>::op(shape(24, 24, 8))}) {
    INFO("transposed: " << describe(op.convolution()));
    check_against_reference(op, 8, numbers(op, op.in.size(), weights_of(op), 8));
    check_against_reference(op, 8, numbers(op, op.in.size(), weights_of(op), 8), false);
  }
}

TEST_CASE("a transposed convolution without examples gives a weight gradient of zero") {
  const auto op = Conv2DTranspose<8, 3>::op(shape(5, 5, 2));
  const auto result = run(op, 0, numbers(op, op.in.size(), weights_of(op), 0), Cpu{});
  CHECK(result.dw == std::vector<float>(weights_of(op), 0.0f));
}
