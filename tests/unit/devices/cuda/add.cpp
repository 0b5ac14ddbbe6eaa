/// \file
#include "lockstep/layers/add.hpp"

#include "compare.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("sums of generated shapes agree with the reference") {
  Philox g(8);
  for (int i = 0; i < generated_shapes; ++i) {
    const AddOp op{shape(between(g, 1, 40), between(g, 1, 40), between(g, 1, 20))};
    INFO(to_string(op.in));
    const auto count = static_cast<std::size_t>(between(g, 0, 5));
    Numbers n = numbers(op, op.in.size(), 0, count);
    n.x2 = as<float>(normal_values(n.x.size(), 9));
    check_against_reference(op, count, n);
  }
}
