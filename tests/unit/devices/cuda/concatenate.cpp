/// \file
#include "lockstep/layers/concatenate.hpp"

#include "compare.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("concatenations of generated shapes agree with the reference") {
  Philox g(32);
  for (int i = 0; i < generated_shapes; ++i) {
    const ConcatenateOp op{shape(between(g, 1, 40), between(g, 1, 40), between(g, 1, 20)),
                           between(g, 1, 20)};
    INFO(to_string(op.in) << " and " << op.other);
    const auto count = static_cast<std::size_t>(between(g, 0, 5));
    Numbers n = numbers(op, op.in.size(), 0, count);
    const std::size_t rows = n.x.size() / static_cast<std::size_t>(op.in.channels());
    n.x2 = as<float>(normal_values(rows * static_cast<std::size_t>(op.other), 9));
    check_against_reference(op, count, n);
  }
}
