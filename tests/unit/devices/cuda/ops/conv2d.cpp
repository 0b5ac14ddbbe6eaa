/// \file
#include "lockstep/devices/cuda/ops/conv2d.hpp"

#include "unit/devices/cuda/compare.hpp"

#include "unit/devices/conv2d.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("convolutions of the models' kinds agree with the reference") {
  for (const auto& op :
       {Conv2D<32, 3>::op(shape(10, 10, 1)), Conv2D<16, 3, same>::op(shape(8, 8, 3)),
        Conv2D<70, 1, same, strides(2)>::op(shape(8, 8, 40)),
        Conv2D<33, 3, same, strides(2)>::op(shape(8, 8, 17))}) {
    INFO(describe(op));
    check_against_reference(op, 3, numbers(op, op.in.size(), weights_of(op), 3));
  }
}
