/// \file
#include "support/fused_normalization.hpp"

#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

namespace {

template <class D, class O>
void agrees_with_the_ops(std::uint64_t seed, double allowed, double allowed_dw) {
  TestGpu gpu;
  for_fused_normalizations<O>(
      seed, generated_shapes,
      [&](const O& op, std::size_t count, const Numbers& n, const std::vector<float>& state,
          bool training, const auto& expected) {
        const auto result = run_layer<D>(op, count, n.x, n.w, n.dy,
                                         {.training = training, .x2 = n.x2, .state = state});
        CHECK(relative_error(result.y, expected.y) < allowed);
        CHECK(relative_error(result.state, expected.state) < 1e-6);
        CHECK(relative_error(result.dx, expected.dx) < allowed);
        CHECK(relative_error(result.dx2, expected.dx2) == 0);
        CHECK(relative_error(result.dw, expected.dw) < allowed_dw);
      });
}

}  // namespace

TEST_CASE("a normalization fused with its ReLU agrees with the two ops") {
  agrees_with_the_ops<Cuda, BatchNormalizationReLUOp>(21, tolerance, tolerance);
}
TEST_CASE("a normalization fused with a sum and its ReLU agrees with the three ops") {
  agrees_with_the_ops<Cuda, BatchNormalizationAddReLUOp>(22, tolerance, tolerance);
}
TEST_CASE("fused normalizations agree with the ops in bfloat16 too", "[.slow]") {
  agrees_with_the_ops<CudaBFloat16, BatchNormalizationReLUOp>(31, half_tolerance,
                                                              half_dw_tolerance);
  agrees_with_the_ops<CudaBFloat16, BatchNormalizationAddReLUOp>(32, half_tolerance,
                                                                 half_dw_tolerance);
}
TEST_CASE("a fused normalization whose input gradient is not needed") {
  fuses_without_a_wanted_gradient<Tested>();
}
TEST_CASE("a fused normalization preserves NaN, as TensorFlow's ReLU does") {
  keeps_what_is_not_a_number<Tested>();
}
TEST_CASE("a residual network's plan fuses its normalizations") {
  fuses_a_residual_network<Tested>();
}
