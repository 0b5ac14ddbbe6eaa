/// \file
/// Kernels of CudaBFloat16 for layers without products of matrices, beside Reference<double>.
#include <catch2/catch_template_test_macros.hpp>

#include "compare.hpp"
#include "lockstep/layers/layers.hpp"
#include "support/bfloat16_layers.hpp"
#include "support/branches.hpp"
#include "unit/devices/synchronized.hpp"

using namespace lockstep;
using namespace testing;

TEMPLATE_TEST_CASE("activations in bfloat16 agree with the reference, also far from zero", "", ReLU,
                   ReLU6, LeakyReLU<>, ELU, GELU, SiLU, Softplus, Rescaling<factor(0.1)>) {
  activates_in_bfloat16<Tested, TestType>();
}
TEMPLATE_TEST_CASE("gradients from a stored result are those of the result as it is stored", "",
                   Sigmoid, Tanh) {
  takes_gradients_from_stored_results<Tested, TestType>();
}
TEMPLATE_TEST_CASE("softmax and its logarithm in bfloat16 agree with the reference", "", Softmax,
                   LogSoftmax) {
  takes_softmax_in_bfloat16<Tested, TestType>();
}
TEST_CASE("pooling in bfloat16 agrees with the reference, also where windows overlap") {
  pools_in_bfloat16<Tested>();
}
TEST_CASE("joined branches in bfloat16 agree with the reference") {
  joins_branches_in_bfloat16<Tested>();
}
TEST_CASE("normalizations in bfloat16 keep their statistics in float") {
  normalizes_in_bfloat16<Tested>();
}
TEST_CASE("layer normalization in bfloat16 sums its weight gradients in float") {
  normalizes_layers_in_bfloat16<Tested>();
}
TEST_CASE("an embedding behind the batch reads numbers that bfloat16 cannot hold") {
  embeds_unrounded_numbers<Tested>();
}

TEST_CASE("normalization of the batch itself reads numbers that bfloat16 cannot hold") {
  TestGpu gpu;
  const auto op = Normalization::op(shape(3));
  const std::vector<float> x{1000.5f, 1001.5f, 999, 1002, 1000, 998.5f}, dy{1, 2, 3, 4, 5, 6},
      state{1000, 1000, 1000, 1, 4, 0.25f};
  const auto expected = run_layer<Reference<double>>(op, 2, as<double>(x), {}, as<double>(dy),
                                                     {.state = as<double>(state)});
  const auto result = run_layer<CudaBFloat16>(op, 2, x, {}, dy, {.is_batch = true, .state = state});
  CHECK(relative_error(result.y, expected.y) < half_tolerance);
  CHECK(relative_error(result.dx, expected.dx) < half_tolerance);
}

TEST_CASE("synchronized normalization in bfloat16 over shares of a batch is that of the batch") {
  TestGpu gpu;
  shares_are_one_batch<CudaBFloat16>(1e-2);
}
