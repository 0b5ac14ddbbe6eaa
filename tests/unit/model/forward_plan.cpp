#include "lockstep/model/forward_plan.hpp"

#include <catch2/catch_test_macros.hpp>

#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>

namespace ls = lockstep;

namespace {

using D = ls::Reference<float>;
struct Chain : ls::Sequential<ls::Input<16>, ls::Dense<16>, ls::ReLU, ls::Dense<16>, ls::ReLU,
                              ls::Dense<16>, ls::ReLU, ls::Dense<16>> {};
struct Skip : ls::Sequential<ls::Input<16>, ls::Dense<16>,
                             ls::Residual<ls::Sequential<ls::Dense<16>, ls::Dense<16>>>> {};
struct Block : ls::Sequential<ls::Input<16>, ls::Dense<16>,
                              ls::Recompute<ls::Sequential<ls::Dense<16>, ls::Tanh>>> {};
struct View : ls::Sequential<ls::Input<4, 4>, ls::Flatten> {};

template <class Net>
constexpr auto& forward = ls::detail::ForwardPlanOf<Net, D>::plan;

}  // namespace

TEST_CASE("ForwardPlan: a chain needs the memory of two values") {
  constexpr std::size_t value = 16 * sizeof(float);
  STATIC_CHECK(forward<Chain>.steps == 7);
  STATIC_CHECK(forward<Chain>.arena == 2 * value);
  STATIC_CHECK(ls::detail::PlanOf<Chain, D>::plan.arena > 2 * value);
}

TEST_CASE("ForwardPlan: a value lives until its last reader") {
  constexpr auto& plan = forward<Skip>;
  STATIC_CHECK(plan.arena == 3 * 16 * sizeof(float));
  const auto at = [](int i) { return plan.step[ls::detail::StepId{i}]; };
  CHECK(plan.steps == 4);
  const std::size_t first = at(3).operands_begin;
  CHECK(at(3).operands() == 2);
  CHECK(plan.operand[first + 1].forward != plan.operand[first].forward);
  for (int i = 0; i < plan.steps; ++i) {
    CHECK_FALSE(at(i).wants_dx);
    CHECK_FALSE(at(i).keeps_y);
  }
  for (const auto& x : plan.operand) CHECK_FALSE(x.keeps);
}

TEST_CASE("ForwardPlan: nothing is computed again") {
  STATIC_CHECK(forward<Block>.recomputed == 0);
  STATIC_CHECK(forward<Block>.steps == 3);
}

TEST_CASE("ForwardPlan: views alone have no step, and the output is the input") {
  STATIC_CHECK(forward<View>.steps == 0);
  STATIC_CHECK(forward<View>.output_is_input);
}
