/// \file
#include "lockstep/layers/activations/softmax.hpp"

#include "unit/devices/cuda/compare.hpp"

#include "unit/devices/softmax.hpp"

TEMPLATE_TEST_CASE("rows longer than a warp's are shared by a block", "", Softmax, LogSoftmax) {
  for (const int classes : {1024, 1025, 1300}) {
    const auto op = TestType::op(shape(2, classes));
    const Numbers n = numbers(op, op.in.size(), 0, 3, 3);
    check_against_reference(op, 3, n, norm(n.dy));
  }
}
