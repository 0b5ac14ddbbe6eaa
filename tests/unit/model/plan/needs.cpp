#include "lockstep/model/plan/needs.hpp"

#include <catch2/catch_test_macros.hpp>

#include "lockstep/layers/layers.hpp"
#include "lockstep/model/plan.hpp"
#include "lockstep/model/residual.hpp"
#include "lockstep/reference.hpp"
#include "unit/model/plan/steps.hpp"

namespace {

namespace ls = lockstep;
using namespace ls::detail;

// Values: 0 the batch, 1 dense, 2 re_lu, 3 dense_1, 4 add, 5 batch_normalization.
struct Net : ls::Sequential<ls::Input<4>, ls::Dense<4>,
                            ls::Residual<ls::Sequential<ls::ReLU, ls::Dense<4>>>,
                            ls::BatchNormalization<ls::synchronized>> {};
constexpr Needs needs = needs_of<ls::Reference<float>>(PlanOf<Net, ls::Reference<float>>::fused);

}  // namespace

TEST_CASE("each value has a producer, the batch has none") {
  CHECK_FALSE(exists(needs.producer[ValueId::batch]));
  for (int v = 1; v <= 5; ++v) CHECK(needs.producer[ValueId{v}] == StepId{v - 1});
}

TEST_CASE("a value read twice by a residual has two readers, the output none") {
  CHECK(needs.readers[ValueId::batch] == 1);
  CHECK(needs.readers[ValueId{1}] == 2);
  CHECK(needs.readers[ValueId{2}] == 1);
  CHECK(needs.readers[ValueId{5}] == 0);
}

TEST_CASE("a value has a gradient if a weight precedes it") {
  for (int v = 0; v <= 5; ++v) CHECK(needs.has_gradient[ValueId{v}] == (v > 0));
  // Values: 1 re_lu, 2 tanh, 3 add, 4 dense, 5 re_lu_1.
  struct Late
      : ls::Sequential<ls::Input<4>, ls::ReLU, ls::Residual<ls::Tanh>, ls::Dense<4>, ls::ReLU> {};
  constexpr Needs late = needs_of<ls::Reference<float>>(PlanOf<Late, ls::Reference<float>>::fused);
  for (int v = 0; v <= 5; ++v) CHECK(late.has_gradient[ValueId{v}] == (v > 3));
}

TEST_CASE("needs are those of the kernels") {
  const KernelNeeds& dense = needs.kernel[StepId{0}];
  CHECK(needs.operand[0].keeps);
  CHECK_FALSE(dense.keeps_y);
  CHECK_FALSE(dense.exchanges);
  const KernelNeeds& norm = needs.kernel[StepId{4}];
  CHECK(norm.exchanges);
  CHECK(norm.updates_state);
  CHECK(norm.once > 0);
}

TEST_CASE("a value is free after its only reader unless its producer keeps it") {
  passes::Steps s;
  const ValueId kept = s.add(ValueId::batch, {.keeps_y = true});
  const ValueId once = s.add(kept);
  const ValueId twice = s.add(once);
  s.add(s.add(twice), {}, {twice});
  CHECK_FALSE(s.needs.is_free_after_its_reader(ValueId::batch));
  CHECK_FALSE(s.needs.is_free_after_its_reader(kept));
  CHECK(s.needs.is_free_after_its_reader(once));
  CHECK_FALSE(s.needs.is_free_after_its_reader(twice));
}
