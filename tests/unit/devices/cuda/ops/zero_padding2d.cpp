/// \file
#include "lockstep/layers/reshaping/zero_padding2d.hpp"

#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("zero padding of generated shapes agrees with the reference") {
  Philox g(34);
  for (int i = 0; i < generated_shapes; ++i) {
    const ZeroPadding2DOp op{
        shape(between(g, 1, 20), between(g, 1, 20), between(g, 1, 20)),
        edges(between(g, 0, 3), between(g, 0, 3), between(g, 0, 3), between(g, 0, 3))};
    INFO(to_string(op.in) << " to " << to_string(op.out()));
    const auto count = static_cast<std::size_t>(between(g, 0, 5));
    check_against_reference(op, count, numbers(op, op.in.size(), 0, count));
  }
}
