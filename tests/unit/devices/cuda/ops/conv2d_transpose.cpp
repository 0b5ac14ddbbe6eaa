/// \file
#include "lockstep/devices/cuda/ops/conv2d_transpose.hpp"

#include "support/convolutions.hpp"
#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("transposed convolutions of generated shapes agree with the reference") {
  Philox g(34);
  for (int i = 0; i < generated_shapes; ++i) {
    const Conv2DTransposeOp op = generated_transposed(g);
    INFO("transposed: " << describe(op.convolution()));
    const auto count = static_cast<std::size_t>(between(g, 0, 3));
    check_against_reference(op, count, numbers(op, op.in.size(), weights_of(op), count));
  }
}

TEST_CASE("a transposed convolution without examples gives a weight gradient of zero") {
  TestGpu gpu;
  const auto op = Conv2DTranspose<8, 3>::op(shape(5, 5, 2));
  const auto result = run<Cuda>(op, 0, numbers(op, op.in.size(), weights_of(op), 0));
  CHECK(result.dw == std::vector<float>(weights_of(op), 0.0f));
}
