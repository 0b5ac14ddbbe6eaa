/// \file
#include "lockstep/layers/up_sampling2d.hpp"

#include "compare.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("images of generated shapes made larger agree with the reference") {
  Philox g(35);
  for (int i = 0; i < generated_shapes; ++i) {
    const UpSampling2DOp op{shape(between(g, 1, 20), between(g, 1, 20), between(g, 1, 20)),
                            {between(g, 1, 4), between(g, 1, 4)},
                            one_of(g, 0, 1) == 0 ? nearest : bilinear};
    INFO(to_string(op.in) << " to " << to_string(op.out())
                          << (op.interpolation == bilinear ? ", bilinear" : ""));
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    check_against_reference(op, count, numbers(op, op.in.size(), 0, count));
  }
}

TEST_CASE("a larger image has the same bits with any number of threads") {
  for (const Interpolation by : {nearest, bilinear}) {
    const UpSampling2DOp op{shape(16, 16, 9), {2, 3}, by};
    const Numbers n = numbers(op, op.in.size(), 0, 7);
    const auto one = run(op, 7, n, Cpu{.threads = 1}), two = run(op, 7, n, Cpu{.threads = 2});
    CHECK(one.y == two.y);
    CHECK(one.dx == two.dx);
  }
}
