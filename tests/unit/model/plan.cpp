#include "lockstep/model/plan.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include "lockstep/model/repeat.hpp"
#include "unit/layers/resnet.hpp"
#include "unit/model/toy_device.hpp"

namespace {

namespace ls = lockstep;

// Four layers of 90,300 weights: more than one bucket each.
struct Wide
    : ls::Sequential<ls::Input<300>, ls::Dense<300>, ls::ReLU, ls::Dense<300>, ls::Dense<300>,
                     ls::Residual<ls::Dense<300>, ls::Dense<300>>, ls::Dense<3>> {};
// Fused, the first branch's step stands behind the second's, whose weights lie above its own.
using DenseAdd = toy::Fusing<toy::Rule<ls::DenseOp, ls::AddOp>>;

/// Buckets cover the gradients once, from the end, and a bucket's numbers are final when it is
/// announced.
template <class Net, class D>
void buckets_are_sound(int at_least) {
  toy::Machine<Net, D> machine(2);
  std::size_t end = Net::graph.weights;
  int buckets = 0;
  std::vector<typename D::real> announced(end);
  const auto final = machine.gradients([&](const ls::detail::Bucket& b) {
    CHECK(b.end == end);
    CHECK(b.begin < b.end);
    const auto now = machine.now();
    for (std::size_t i = b.begin; i < b.end; ++i) announced[i] = now[i];
    end = b.begin;
    ++buckets;
  });
  CHECK(end == 0);
  CHECK(buckets >= at_least);
  CHECK(announced == final);  // a NaN, never written, is not equal to itself
}

}  // namespace

TEST_CASE("buckets cover the flat gradients exactly once, each finished when it is announced") {
  buckets_are_sound<Wide, ls::Reference<float>>(4);
}

TEST_CASE("buckets are finished in time also when fusion changes the order of the steps") {
  static_assert(ls::detail::PlanOf<Wide, DenseAdd>::plan.steps ==
                ls::detail::PlanOf<Wide, ls::Reference<float>>::plan.steps - 1);
  buckets_are_sound<Wide, DenseAdd>(4);
}

TEST_CASE("a small model has one bucket, a model without weights none") {
  struct Small : ls::Sequential<ls::Input<3>, ls::Dense<2>, ls::ReLU, ls::Dense<1>> {};
  struct None : ls::Sequential<ls::Input<3>, ls::ReLU> {};
  CHECK(ls::detail::PlanOf<Small, ls::Reference<float>>::plan.buckets == 1);
  CHECK(ls::detail::PlanOf<None, ls::Reference<float>>::plan.buckets == 0);
  buckets_are_sound<Small, ls::Reference<float>>(1);
}

TEST_CASE("a plan knows which state each replica changes by its own examples") {
  using Own = ls::BatchNormalization<>;
  using Shared = ls::BatchNormalization<ls::synchronized>;
  struct Norms : ls::Sequential<ls::Input<3>, ls::Normalization, Own, ls::Dense<4>, Shared,
                                ls::ReLU, ls::Dense<5>, Own> {};
  constexpr auto& plan = ls::detail::PlanOf<Norms, ls::Reference<float>>::plan;
  static_assert(plan.updates_state && plan.averages == 2 && plan.averaged_size == 16);
  CHECK(plan.averaged[0].begin == 6);
  CHECK(plan.averaged[0].end == 12);
  CHECK(plan.averaged[1].begin == 20);
  CHECK(plan.averaged[1].end == 30);
  struct Adjacent : ls::Sequential<ls::Input<3>, Own, ls::Dense<4>, Own> {};
  constexpr auto& one = ls::detail::PlanOf<Adjacent, ls::Reference<float>>::plan;
  static_assert(one.averages == 1 && one.averaged_size == 14);
  // The first that exchanges within the step.
  CHECK(plan.step[static_cast<std::size_t>(plan.exchanges)].name == "batch_normalization");
  CHECK(plan.step[static_cast<std::size_t>(plan.exchanges)].ordinal == 1);
  struct None : ls::Sequential<ls::Input<3>, ls::Normalization, ls::Dense<4>> {};
  static_assert(!ls::detail::PlanOf<None, ls::Reference<float>>::plan.updates_state);
}

TEST_CASE("the plan of ResNet-164 is a constant within the compilers' default limits") {
  struct ResNet164 : resnet::ResNet<27> {};
  constexpr auto& plan = ls::detail::PlanOf<ResNet164, ls::Reference<float>>::plan;
  static_assert(plan.steps == ResNet164::graph.nodes);
  // One entry in the table for each distinct op, not for each layer.
  CHECK(plan.pool.of<ls::Conv2DOp>().count == 9);
  CHECK(plan.pool.of<ls::BatchNormalizationOp>().count == 3);
  // Reuse: the arena is much smaller than all activations and gradients together.
  CHECK(plan.arena * 3 < plan.arena_unshared * 2);
  CHECK(plan.arena % 64 == 0);
  // Statistics, one double and four a channel, in whole lines of 64 bytes: 56 layers of 16
  // channels, 55 of 32 and 55 of 64.
  CHECK(plan.once == 56 * 576 + 55 * 1088 + 55 * 2112);
  std::size_t covered = 0;
  for (int i = 0; i < plan.buckets; ++i) {
    const auto& b = plan.bucket[static_cast<std::size_t>(i)];
    covered += b.end - b.begin;
  }
  CHECK(covered == ResNet164::trainable_count);
}
