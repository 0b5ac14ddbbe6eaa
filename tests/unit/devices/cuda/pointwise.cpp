/// \file
#include "compare.hpp"
#include "lockstep/layers/layers.hpp"

#include <catch2/catch_template_test_macros.hpp>

using namespace lockstep;
using namespace testing;

TEMPLATE_TEST_CASE("activations of generated shapes agree with the reference", "", ReLU) {
  Philox g(6);
  for (int i = 0; i < generated_shapes; ++i) {
    const auto op = TestType::op(shape(between(g, 1, 9), between(g, 1, 9), between(g, 1, 20)));
    const auto count = static_cast<std::size_t>(between(g, 0, 5));
    const double spread = one_of(g, 1, 10, 100, 1000) * 0.1;
    INFO(to_string(op.in) << ", numbers up to about " << 3 * spread);
    const Numbers n = numbers(op, op.in.size(), 0, count, spread);
    check_against_reference(op, count, n, norm(n.dy));
  }
}
