/// \file
#include "lockstep/layers/activations/softmax.hpp"

#include <catch2/catch_template_test_macros.hpp>

#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

TEMPLATE_TEST_CASE("softmax and its logarithm agree with the reference on generated shapes", "",
                   Softmax, LogSoftmax) {
  Philox g(7);
  for (int i = 0; i < generated_shapes; ++i) {
    const int classes = i == 0 ? 3000 : between(g, 2, 80);
    const auto op = TestType::op(
        one_of(g, 0, 1) == 0 ? shape(classes) : shape(between(g, 1, 5), between(g, 1, 5), classes));
    INFO(to_string(op.in));
    const auto count = static_cast<std::size_t>(between(g, 0, 9));
    const double spread = one_of(g, 1, 10);
    const Numbers n = numbers(op, op.in.size(), 0, count, spread);
    check_against_reference(op, count, n, norm(n.dy));
  }
}

TEMPLATE_TEST_CASE("rows longer than a warp's are shared by a block", "", Softmax, LogSoftmax) {
  for (const int classes : {1024, 1025, 1300}) {
    const auto op = TestType::op(shape(2, classes));
    const Numbers n = numbers(op, op.in.size(), 0, 3, 3);
    check_against_reference(op, 3, n, norm(n.dy));
  }
}

TEST_CASE("the softmax of one class is 1, its logarithm 0, and no gradient passes") {
  TestGpu gpu;
  const Numbers n = numbers(Softmax::op(shape(1)), 1, 0, 20, 5);
  const auto value = run<Cuda>(Softmax::op(shape(1)), 20, n),
             logarithm = run<Cuda>(LogSoftmax::op(shape(1)), 20, n);
  for (std::size_t i = 0; i < 20; ++i) {
    CHECK(value.y[i] == 1);
    CHECK(logarithm.y[i] == 0);
    CHECK(value.dx[i] == 0);
    CHECK(logarithm.dx[i] == 0);
  }
}

TEST_CASE("a large logit overflows nothing") {
  TestGpu gpu;
  const auto op = Softmax::op(shape(3));
  const auto result = run<Cuda>(op, 1, Numbers{{1000, 999, -1000}, {}, {1, 0, 0}, {}});
  CHECK(relative_error(result.y, std::vector<double>{0.7310585786, 0.2689414214, 0.0}) < tolerance);
}
