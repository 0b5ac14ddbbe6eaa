/// \file
#include "lockstep/layers/up_sampling2d.hpp"

#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("images of generated shapes made larger agree with the reference") {
  Philox g(35);
  for (int i = 0; i < 2 * generated_shapes; ++i) {
    const UpSampling2DOp op{shape(between(g, 1, 12), between(g, 1, 12), between(g, 1, 20)),
                            {between(g, 1, 4), between(g, 1, 4)},
                            i % 2 == 0 ? nearest : bilinear};
    INFO(to_string(op.in) << " to " << to_string(op.out())
                          << (op.interpolation == bilinear ? ", bilinear" : ""));
    const auto count = static_cast<std::size_t>(between(g, 0, 5));
    check_against_reference(op, count, numbers(op, op.in.size(), 0, count));
  }
}
