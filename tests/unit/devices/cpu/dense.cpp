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

TEST_CASE("dense layers of many inputs, which threads share, agree with the reference") {
  Philox g(3);
  for (int i = 0; i < generated_shapes; ++i) {
    const DenseOp op{between(g, 250, 700), between(g, 1, 70), one_of(g, 0, 1) == 0};
    const auto count = static_cast<std::size_t>(between(g, 1, 90));
    INFO(op.inputs << " -> " << op.units << (op.bias ? ", bias" : ""));
    const std::size_t weights =
        op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.units) : 0);
    const auto n = numbers(op, op.in().size(), weights, count);
    for (const bool want_dx : {true, false}) check_against_reference(op, count, n, want_dx);
  }
}

TEST_CASE("a dense layer takes small batches by its inputs on several threads, others by oneDNN") {
  constexpr DenseOp op{512, 64, true};
  CHECK(lockstep::detail::DenseByInputs::fits(op, 64, 2));
  CHECK_FALSE(lockstep::detail::DenseByInputs::fits(op, 65, 2));
  CHECK_FALSE(lockstep::detail::DenseByInputs::fits(op, 1, 1));
  CHECK_FALSE(lockstep::detail::DenseByInputs::fits({255, 64, true}, 1, 2));
  // The same bits again, and with more threads than there are ranges of inputs.
  const auto n = numbers(op, 512, op.kernel_size() + 64, 5);
  for (const int threads : {2, 40}) {
    const auto a = run(op, 5, n, Cpu{.threads = threads}),
               b = run(op, 5, n, Cpu{.threads = threads});
    CHECK(a.y == b.y);
    CHECK(a.dx == b.dx);
    CHECK(a.dw == b.dw);
  }
}
