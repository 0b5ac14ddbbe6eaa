/// \file
/// UpSampling2D on the Cpu, in addition to the shared cases.
#include "lockstep/layers/reshaping/up_sampling2d.hpp"

#include "compare.hpp"

#include "unit/devices/up_sampling2d.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("upsampling gives equal bits for any number of threads") {
  for (const Interpolation by : {nearest, bilinear}) {
    const UpSampling2DOp op{shape(16, 16, 9), {2, 3}, by};
    const Numbers n = numbers(op, op.in.size(), 0, 7);
    const auto one = run(op, 7, n, Cpu{.threads = 1}), two = run(op, 7, n, Cpu{.threads = 2});
    CHECK(one.y == two.y);
    CHECK(one.dx == two.dx);
  }
}
