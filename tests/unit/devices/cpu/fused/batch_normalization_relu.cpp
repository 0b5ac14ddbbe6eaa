/// \file
/// BatchNormalization fused with its epilogue on the Cpu.
#include "lockstep/devices/cpu/fused/batch_normalization_relu.hpp"

#include "support/fused_normalization.hpp"
#include "unit/devices/cpu/compare.hpp"

using namespace lockstep;
using namespace testing;

namespace {

template <class O>
void agrees_with_the_ops(std::uint64_t seed) {
  for_fused_normalizations<O>(
      seed, generated_shapes,
      [](const O& op, std::size_t count, const Numbers& n, const std::vector<float>& state,
         bool training, const auto& expected) {
        for (const int threads : {1, 2}) {
          INFO("threads " << threads);
          const Cpu device{.threads = threads};
          const auto cpu =
              run_layer<Cpu>(op, count, n.x, n.w, n.dy,
                             {.training = training, .x2 = n.x2, .state = state}, device);
          check_close(cpu, expected);
          CHECK(relative_error(cpu.state, expected.state) < 1e-6);
          const auto plain = unfused<Cpu>(op, count, n, state, training, device);
          check_close(cpu, plain);
          CHECK(cpu.state == plain.state);
        }
      });
}

template <class O>
void agrees_in_bfloat16(std::uint64_t seed) {
  need_bfloat16();
  for_fused_normalizations<O>(
      seed, Tested::half_shapes,
      [](const O& op, std::size_t count, const Numbers& n, const std::vector<float>& state,
         bool training, const auto& expected) {
        const auto half = run_layer<CpuBFloat16>(op, count, n.x, n.w, n.dy,
                                                 {.training = training, .x2 = n.x2, .state = state},
                                                 Tested::half());
        CHECK(relative_error(half.y, expected.y) < half_tolerance);
        CHECK(relative_error(half.state, expected.state) < 1e-6);
        if (!training) return;
        CHECK(relative_error(half.dx, expected.dx) < half_tolerance);
        CHECK(relative_error(half.dx2, expected.dx2) == 0);
        CHECK(relative_error(half.dw, expected.dw) < half_dw_tolerance);
      });
}

}  // namespace

TEST_CASE("fused normalizations agree with the separate ops in bfloat16 too") {
  agrees_in_bfloat16<BatchNormalizationReLUOp>(31);
  agrees_in_bfloat16<BatchNormalizationAddReLUOp>(32);
}
TEST_CASE("a normalization fused with a ReLU agrees with the two ops") {
  agrees_with_the_ops<BatchNormalizationReLUOp>(21);
}
TEST_CASE("a normalization fused with add and ReLU agrees with the three ops") {
  agrees_with_the_ops<BatchNormalizationAddReLUOp>(22);
}
TEST_CASE("a fused normalization of the batch itself computes no dx") {
  fuses_without_a_wanted_gradient<Tested>();
}
TEST_CASE("a fused normalization propagates NaN, as TensorFlow's ReLU does") {
  keeps_what_is_not_a_number<Tested>();
}
TEST_CASE("a residual network's plan fuses its normalizations") {
  fuses_a_residual_network<Tested>();
}
