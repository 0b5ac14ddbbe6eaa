/// \file
#include "lockstep/devices/cuda/ops/conv2d.hpp"

#include "support/convolutions.hpp"
#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("convolutions of generated shapes agree with the reference") {
  Philox g(1);
  for (int i = 0; i < generated_shapes; ++i) {
    const Conv2DOp op = generated_convolution(g);
    INFO(describe(op));
    const auto count = static_cast<std::size_t>(between(g, 0, 3));
    check_against_reference(op, count, numbers(op, op.in.size(), weights_of(op), count));
  }
}

TEST_CASE("convolutions of the models' kinds agree with the reference") {
  for (const auto& op :
       {Conv2D<32, 3>::op(shape(10, 10, 1)), Conv2D<16, 3, same>::op(shape(8, 8, 3)),
        Conv2D<70, 1, same, strides(2)>::op(shape(8, 8, 40)),
        Conv2D<33, 3, same, strides(2)>::op(shape(8, 8, 17))}) {
    INFO(describe(op));
    check_against_reference(op, 3, numbers(op, op.in.size(), weights_of(op), 3));
  }
}

TEST_CASE("a convolution without examples gives a weight gradient of zero") {
  TestGpu gpu;
  const auto op = Conv2D<8, 3>::op(shape(5, 5, 2));
  const auto result = run<Cuda>(op, 0, numbers(op, op.in.size(), weights_of(op), 0));
  CHECK(result.dw == std::vector<float>(weights_of(op), 0.0f));
}
