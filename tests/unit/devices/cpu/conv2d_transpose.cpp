/// \file
/// Conv2DTranspose on the Cpu, in addition to the shared cases.
#include "lockstep/layers/convolution/conv2d_transpose.hpp"

#include "compare.hpp"

#include "unit/devices/conv2d_transpose.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("transposed convolutions split over threads agree with the reference") {
  for (const auto& op : {Conv2DTranspose<16, 3, same, strides(2)>::op(shape(16, 16, 24)),
                         Conv2DTranspose<3, 4, same, strides(2)>::op(shape(16, 16, 16)),
                         Conv2DTranspose<1, 5>::op(shape(24, 24, 8))}) {
    INFO("transposed: " << describe(op.convolution()));
    check_against_reference(op, 8, numbers(op, op.in.size(), weights_of(op), 8));
    check_against_reference(op, 8, numbers(op, op.in.size(), weights_of(op), 8), false);
  }
}
