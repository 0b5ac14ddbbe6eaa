/// \file
#include "lockstep/layers/dense.hpp"

#include "compare.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("dense layers of generated sizes agree with the reference") {
  Philox g(2);
  for (int i = 0; i < generated_shapes; ++i) {
    const DenseOp op{between(g, 1, 70), between(g, 1, 70), one_of(g, 0, 1) == 0};
    const auto count = static_cast<std::size_t>(between(g, 1, 9));
    INFO(op.inputs << " -> " << op.units << (op.bias ? ", bias" : ""));
    const std::size_t weights =
        op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.units) : 0);
    check_against_reference(op, count, numbers(op, op.in().size(), weights, count));
  }
}

TEST_CASE("a dense layer without examples gives a weight gradient of zero") {
  const auto op = Dense<3>::op(shape(4));
  CHECK(run(op, 0, numbers(op, 4, 15, 0), Cpu{}).dw == std::vector<float>(15, 0.0f));
}
