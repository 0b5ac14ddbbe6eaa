#include "lockstep/model/plan.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/model/recompute.hpp"
#include "lockstep/model/repeat.hpp"
#include "unit/layers/resnet.hpp"
#include "unit/model/toy_device.hpp"

namespace {

namespace ls = lockstep;

// Four layers with 90,300 weights, each more than a bucket.
struct Wide
    : ls::Sequential<ls::Input<300>, ls::Dense<300>, ls::ReLU, ls::Dense<300>, ls::Dense<300>,
                     ls::Residual<ls::Dense<300>, ls::Dense<300>>, ls::Dense<3>> {};
// If fused, the first branch's step comes after the second's, which has higher weights.
using DenseAdd = toy::Fusing<toy::Rule<ls::DenseOp, ls::AddOp>>;

/// Buckets cover the gradients exactly once, from the end, and a bucket is final when it is
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
  CHECK(announced == final);  // NaN marks elements that were never written, and NaN != NaN
}

/// The reference device with two-byte activations; only its plan is used.
struct HalfActivations : ls::Reference<float> {
  using activation = std::int16_t;
  struct Context : ls::Reference<float>::Context {
    using ls::Reference<float>::Context::add;
    void add(activation*, const activation*, std::size_t) const {}
    void convert(activation*, const float*, std::size_t) const {}
    void convert(float*, const activation*, std::size_t) const {}
  };
  Context open(std::size_t, std::size_t) const { return {}; }
};

}  // namespace

template <class TheOp>
struct lockstep::Kernel<TheOp, HalfActivations> : Kernel<TheOp, Reference<float>> {};

TEST_CASE("buckets cover the flat gradients exactly once and are final when announced") {
  buckets_are_sound<Wide, ls::Reference<float>>(4);
}

TEST_CASE("buckets are final when announced even if fusion reorders steps") {
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

TEST_CASE("a plan lists the state that replicas update separately") {
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
  // The first step that exchanges.
  CHECK(plan.step[plan.exchanges].name == "batch_normalization");
  CHECK(plan.step[plan.exchanges].ordinal == 1);
  struct None : ls::Sequential<ls::Input<3>, ls::Normalization, ls::Dense<4>> {};
  static_assert(!ls::detail::PlanOf<None, ls::Reference<float>>::plan.updates_state);
}

TEST_CASE("the plan of ResNet-164 is a constant within the compilers' default limits") {
  struct ResNet164 : resnet::ResNet<27> {};
  constexpr auto& plan = ls::detail::PlanOf<ResNet164, ls::Reference<float>>::plan;
  static_assert(plan.steps == ResNet164::graph.nodes);
  // One entry in the table per distinct op, not per layer.
  CHECK(plan.pool.of<ls::Conv2DOp>().count == 9);
  CHECK(plan.pool.of<ls::BatchNormalizationOp>().count == 3);
  // Memory is reused: the arena is much smaller than all activations and gradients.
  CHECK(plan.arena * 3 < plan.arena_unshared * 2);
  CHECK(plan.arena % 64 == 0);
  // Statistics, one double and four per channel, rounded up to lines of 64 bytes: 56 layers with 16
  // channels, 55 with 32 and 55 with 64.
  CHECK(plan.once == 56 * 576 + 55 * 1088 + 55 * 2112);
  std::size_t covered = 0;
  for (std::size_t i = 0; i < plan.buckets; ++i) {
    const auto& b = plan.bucket[i];
    covered += b.end - b.begin;
  }
  CHECK(covered == ResNet164::trainable_count);
}

TEST_CASE("the public plan has the memory sizes of the model at run time") {
  struct Net
      : ls::Sequential<ls::Input<6, 6, 2>, ls::Conv2D<4, 3>, ls::BatchNormalization<>, ls::ReLU,
                       ls::Flatten, ls::Dense<5>, ls::Dropout<ls::rate(0.5f)>, ls::Dense<3>> {};
  constexpr auto& plan = ls::plan<Net, ls::Reference<double>>;
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<double>>{},
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::Adam{}};
  const auto x = testing::as<double>(testing::normal_values(7 * 72, 1));
  const std::vector<std::int32_t> labels{0, 1, 2, 0, 1, 2, 0};
  model.fit(ls::tensors(x, ls::shape(6, 6, 2), labels) | ls::batch(7),
            {.epochs = 1, .progress = ls::ProgressStyle::none});
  const ls::MemoryUse use = model.memory();
  CHECK(use.weights == plan.weight_bytes);
  CHECK(use.gradients == plan.gradient_bytes);
  CHECK(use.state == plan.state_bytes);
  CHECK(use.optimizer == plan.optimizer_bytes(ls::Adam{}.slot_count()));
  CHECK(use.working == plan.arena_bytes(7));
  CHECK(use.total() == plan.memory_bytes(7, 2));
}

TEST_CASE("the public plan lists activations and buckets in order of creation") {
  constexpr auto& plan = ls::plan<Wide, ls::Reference<float>>;
  static_assert(plan.activations.size() == 8 && plan.activations[0].layer == "dense" &&
                plan.activations[2].layer == "dense" && plan.activations[2].ordinal == 1);
  CHECK(plan.activations[7].shape == ls::shape(3));
  CHECK(plan.activations[7].bytes == 12);
  // The ReLU works in place.
  CHECK(plan.activations[0].offset == plan.activations[1].offset);
  for (const auto& a : plan.activations) {
    CHECK(a.offset + a.bytes <= plan.example_bytes);
    CHECK(a.layers == 1);
  }
  std::size_t end = Wide::graph.weights, bytes = 0;
  for (const auto& b : plan.buckets) {
    CHECK(b.end == end);
    end = b.begin;
    bytes += b.bytes;
  }
  CHECK(bytes == plan.gradient_bytes);
  CHECK(plan.buckets.front().layer == "dense");
  CHECK(plan.buckets.front().ordinal == 4);
  CHECK(plan.buckets.back().ordinal == 0);
  // A step with two fused layers.
  constexpr auto& fused = ls::plan<Wide, DenseAdd>;
  static_assert(fused.activations.size() == 7 && fused.activations[5].layers == 2);
}

TEST_CASE("the public plan counts FLOPs of all passes and the bytes of an all-reduce") {
  struct Plain : ls::Sequential<ls::Input<10>, ls::Dense<20>, ls::Tanh, ls::Dense<5>> {};
  constexpr auto& plan = ls::plan<Plain, ls::Reference<float>>;
  static_assert(plan.flops == 2 * 10 * 20 + 2 * 20 * 5);
  // The first layer needs no gradient of x.
  static_assert(plan.backward_flops == 2 * 10 * 20 + 2 * 2 * 20 * 5);
  static_assert(plan.step_flops(3) == 3 * (plan.flops + plan.backward_flops));
  static_assert(plan.wire_bytes(0) == 0 && plan.wire_bytes(1) == 0);
  static_assert(plan.wire_bytes(2) == plan.gradient_bytes);
  static_assert(plan.push_bytes() == plan.gradient_bytes);
  static_assert(plan.pull_bytes(4) == 3 * plan.weight_bytes);
  static_assert(plan.wire_bytes(4) == plan.gradient_bytes * 3 / 2);
  static_assert(plan.recomputed_steps == 0 && plan.recomputed_flops == 0);
  struct Again
      : ls::Sequential<ls::Input<10>, ls::Recompute<ls::Sequential<ls::Dense<20>, ls::Tanh>>,
                       ls::Dense<5>> {};
  constexpr auto& again = ls::plan<Again, ls::Reference<float>>;
  CHECK(again.flops == plan.flops);
  CHECK(again.step_flops(1) == plan.step_flops(1) + again.recomputed_flops);
  // Running statistics, in double, are exchanged with the gradients.
  struct Norm : ls::Sequential<ls::Input<10>, ls::BatchNormalization<>, ls::Dense<5>> {};
  constexpr auto& norm = ls::plan<Norm, ls::Reference<float>>;
  static_assert(norm.averaged_state_bytes == 20 * 8);
  static_assert(norm.wire_bytes(2) == norm.gradient_bytes + 20 * 8);
}

TEST_CASE("two-byte activations need half the memory, plus buffers to convert batch and output") {
  struct Net : ls::Sequential<ls::Input<64>, ls::Dense<64>, ls::Tanh, ls::Dense<32>> {};
  constexpr auto& plan = ls::plan<Net, HalfActivations>;
  constexpr auto& full = ls::plan<Net, ls::Reference<float>>;
  static_assert(plan.activations[0].bytes * 2 == full.activations[0].bytes);
  static_assert(plan.weight_bytes == full.weight_bytes);
  static_assert(plan.converted_example_bytes == 64 * 2 + 2 * 32 * 4);
  static_assert(plan.memory_bytes(3, 0) ==
                2 * plan.weight_bytes + 3 * plan.example_bytes + 3 * (64 * 2 + 2 * 32 * 4));
}
