/// \file
#include "lockstep/layers/activations/softmax.hpp"

#include <catch2/catch_template_test_macros.hpp>

#include "compare.hpp"

using namespace lockstep;
using namespace testing;

TEMPLATE_TEST_CASE("softmax and its logarithm agree with the reference on generated shapes", "",
                   Softmax, LogSoftmax) {
  Philox g(7);
  for (int i = 0; i < generated_shapes; ++i) {
    const int classes = between(g, 2, 40);
    const auto op = TestType::op(
        one_of(g, 0, 1) == 0 ? shape(classes) : shape(between(g, 1, 5), between(g, 1, 5), classes));
    INFO(to_string(op.in));
    const auto count = static_cast<std::size_t>(between(g, 1, 9));
    const double spread = one_of(g, 1, 10);
    const Numbers n = numbers(op, op.in.size(), 0, count, spread);
    check_against_reference(op, count, n, true, norm(n.dy));
  }
}

TEST_CASE("the softmax of one class is 1, its logarithm 0, and no gradient passes") {
  const Numbers n = numbers(Softmax::op(shape(1)), 1, 0, 20, 5);
  const auto value = run(Softmax::op(shape(1)), 20, n, Cpu{.threads = 1}),
             logarithm = run(LogSoftmax::op(shape(1)), 20, n, Cpu{.threads = 1});
  for (std::size_t i = 0; i < 20; ++i) {
    CHECK(std::abs(value.y[i] - 1) < 1e-5f);
    CHECK(std::abs(logarithm.y[i]) < 1e-5f);
    CHECK(std::abs(value.dx[i]) < 1e-5f);
    CHECK(std::abs(logarithm.dx[i]) < 1e-5f);
  }
}

TEST_CASE("a large logit overflows nothing") {
  const auto op = Softmax::op(shape(3));
  const auto result = run(op, 1, Numbers{{1000.0f, 999.0f, -1000.0f}, {}, {1.0f, 0.0f, 0.0f}, {}},
                          Cpu{.threads = 1});
  CHECK(relative_error(result.y, std::vector<double>{0.7310585786, 0.2689414214, 0.0}) < tolerance);
}
