/// \file
#include "lockstep/devices/cuda/ops/attention/dot_product_attention.hpp"

#include "lockstep/layers/attention/multi_head_attention.hpp"
#include "unit/devices/attention.hpp"
#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE(
    "attention of generated shapes has the result and the gradients of its formula on a GPU") {
  const TestGpu gpu;
  attention::check_generated(Cuda{}, 5, 65, 1e-5);
}

TEST_CASE("scores of -infinity give NaN on a GPU, no key gives 0") {
  const TestGpu gpu;
  attention::check_infinite_scores(Cuda{});
}

TEST_CASE("attention with large heads has smaller tiles, with the same result") {
  const TestGpu gpu;
  attention::check(Cuda{}, attention::call_of({9, 20, 1, 1, 300, 200, {0.0f, true}}, 1), 1e-5);
}

TEST_CASE("attention layers agree with the reference on a GPU") {
  const auto op =
      MultiHeadAttention<3, 6, value_dim(4), output_shape(7), rotary()>::op(shape(9, 6));
  check_against_reference(op, 2, numbers(op, op.in.size(), op.weights(), 2, 0.5));
}
