/// \file
/// The Cpu shares its augmentation kernels with the reference device, so they give equal bits.
#include "lockstep/layers/augmentation.hpp"

#include <catch2/catch_test_macros.hpp>

#include "lockstep/cpu.hpp"
#include "lockstep/layers/layers.hpp"
#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace ls = lockstep;

namespace {

template <class L>
bool same_bits(bool training) {
  constexpr auto in = ls::shape(9, 7, 3);
  constexpr auto op = L::op(in);
  const auto x = testing::as<float>(testing::normal_values(5 * in.size(), 1));
  const auto dy = testing::as<float>(testing::normal_values(5 * op.out().size(), 2));
  const testing::RunOptions<float> options{.training = training, .first_ordinal = 1'000'000'007};
  const auto a = testing::run_layer<ls::Cpu>(op, 5, x, {}, dy, options);
  const auto b = testing::run_layer<ls::Reference<float>>(op, 5, x, {}, dy, options);
  return a.y == b.y && a.dx == b.dx;
}

}  // namespace

TEST_CASE("augmentation on the Cpu gives the reference's bits") {
  for (const bool training : {true, false}) {
    CHECK(same_bits<ls::RandomCrop<5, 5>>(training));
    CHECK(same_bits<ls::RandomCrop<12, 4>>(training));
    CHECK(same_bits<ls::RandomFlip<>>(training));
    CHECK(same_bits<ls::RandomTranslation<ls::factor(0.5), ls::factor(0.5)>>(training));
    CHECK(same_bits<ls::RandomRotation<ls::factor(1), ls::fill_wrap>>(training));
    CHECK(same_bits<ls::RandomCutout<4, ls::fill_constant(2)>>(training));
  }
}
