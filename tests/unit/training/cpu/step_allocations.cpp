#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/local_sgd.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/sharded.hpp>
#include <lockstep/wire.hpp>

#include "support/allocation_counter.hpp"

namespace ls = lockstep;

namespace {

/// Layers that communicate within a step cannot be computed in slices.
template <auto... Options>
struct NetOf
    : ls::Sequential<ls::Input<12, 12, 1>, ls::Conv2D<8, 3, ls::kernel_regularizer(ls::L2{1e-4})>,
                     ls::ReLU, ls::MaxPooling2D<>, ls::BatchNormalization<Options...>, ls::Flatten,
                     ls::Dropout<ls::rate(0.25f)>, ls::Dense<16>, ls::GELU, ls::Dense<10>> {};
struct Net : NetOf<> {};
struct Synchronized : NetOf<ls::synchronized> {};

/// Counts allocations from the end of one step to the end of the next, including data and
/// callbacks.
class StepAllocations : public ls::Callback {
 public:
  std::size_t steps = 0, allocations = 0;
  void on_epoch_begin(int epoch, const ls::Logs&) override { epoch_ = epoch; }
  void on_train_batch_end(std::size_t batch, const ls::Logs&) override {
    if (epoch_ > 0 && batch > 0) {
      ++steps;
      allocations += counter_.count();
    }
    counter_ = {};
  }

 private:
  int epoch_ = 0;
  testing::AllocationCounter counter_;
};

auto data() {
  constexpr std::size_t examples = 45;  // the last batch is smaller
  std::vector<std::uint8_t> pixels(examples * 144);
  std::vector<std::int32_t> labels(examples);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 31);
  for (std::size_t i = 0; i < examples; ++i) labels[i] = static_cast<std::int32_t>(i % 10);
  return ls::tensors(pixels, ls::shape(12, 12, 1), labels) | ls::rescale(1.0 / 255);
}

template <class Optimizer>
std::size_t allocations_of_a_step(Optimizer optimizer, int threads) {
  ls::Model model{Net{}, ls::OneDevice<ls::Cpu>{.on = {.threads = threads}},
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, optimizer,
                  ls::Accuracy{}};
  auto counted = std::make_shared<StepAllocations>();
  model.fit(data() | ls::shuffle(20) | ls::batch(8),
            {.epochs = 4, .callbacks = {counted}, .progress = ls::ProgressStyle::none});
  REQUIRE(counted->steps == 15);
  return counted->allocations;
}

using Mirrored = ls::Mirrored<ls::Cpu>;

/// Counts each replica thread's allocations within `each`.
struct CountingSession : Mirrored::Session {
  using Mirrored::Session::Session;
  static inline std::vector<std::size_t> allocations;
  template <class Body>
  void each(Body&& body) {
    allocations.resize(local_replicas());
    Mirrored::Session::each([&](const ls::ReplicaContext<ls::Cpu>& r) {
      const testing::AllocationCounter counter;
      body(r);
      allocations[r.local] = counter.count();
    });
  }
};
struct CountingMirrored {
  using device = ls::Cpu;
  static constexpr std::string_view name = "mirrored";
  Mirrored options;
  CountingSession open() const { return CountingSession(options); }
};

/// Trains with the update policy, and counts after the first epoch, which prepares each batch size.
template <class TheNet, class Policy = ls::Replicated>
void check_steps(const Mirrored& options, Policy policy = {}) {
  CAPTURE(options.virtual_shards, Policy::name);
  ls::Model model{TheNet{}, CountingMirrored{options} | policy,
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::Adam{},
                  ls::Accuracy{}};
  std::size_t steps = 0;
  int epoch = 0;
  const auto count = [&](std::size_t, const ls::Logs&) {
    if (epoch == 0) return;
    ++steps;
    CHECK(CountingSession::allocations == std::vector<std::size_t>{0, 0});
  };
  model.fit(data() | ls::batch(8),
            {.epochs = 3,
             .callbacks = {ls::LambdaCallback{
                 .on_epoch_begin = [&](int e, const ls::Logs&) { epoch = e; },
                 .on_train_batch_end = count}},
             .progress = ls::ProgressStyle::none});
  CHECK(steps == 12);
}

}  // namespace

TEST_CASE("A training step on the Cpu allocates nothing, even with a smaller last batch") {
  CHECK(allocations_of_a_step(ls::SGD{.learning_rate = 0.01, .momentum = 0.9}, 1) == 0);
  CHECK(allocations_of_a_step(ls::Adam{}, 2) == 0);
}

TEST_CASE("The allocation counter of this test detects an allocation in a step") {
  const testing::AllocationCounter counter;
  const auto p = std::make_unique<int>(1);
  CHECK(counter.count() == 1);
}

TEMPLATE_TEST_CASE("A step of replicas on the Cpu allocates nothing in their threads", "", Net,
                   Synchronized) {
  check_steps<TestType>({.replicas = 2, .on = {.threads = 1}});
  if constexpr (std::is_same_v<TestType, Net>) {
    const Mirrored sliced{.replicas = 2, .on = {.threads = 1}, .virtual_shards = 4};
    check_steps<Net>(sliced);
    check_steps<Net>(sliced, ls::Sharded{});
    check_steps<Net>({.replicas = 2, .on = {.threads = 1}}, ls::LocalSgd{.steps = 1});
    for (const ls::wire::Format& format :
         {ls::wire::Format(ls::wire::bfloat16{}), ls::wire::Format(ls::wire::TopK{}),
          ls::wire::Format(ls::wire::PowerSgd{.start = 1})})
      check_steps<Net>({.replicas = 2, .on = {.threads = 1}}, format);
  }
}

TEST_CASE("The options of an update policy are part of its strategy") {
  // --8<-- [start:local]
  const auto averaging = ls::Mirrored<ls::Cpu>{.replicas = 4} | ls::LocalSgd{.steps = 16};
  const auto diloco = ls::Mirrored<ls::Cpu>{.replicas = 4} | ls::DiLoCo{.steps = 500};
  // --8<-- [end:local]
  CHECK((averaging.policy.steps == 16 && diloco.policy.outer_rate == 0.7));
}

TEST_CASE("Replicas of one process compare their weights only after a change") {
  ls::Model model{Net{}, CountingMirrored{{.replicas = 2, .on = {.threads = 1}}},
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::Adam{},
                  ls::Accuracy{}};
  const auto batches = data() | ls::batch(8);
  const auto allocations = [&] {
    const testing::AllocationCounter counter;
    model.predict(batches);
    return counter.count();
  };
  allocations();
  const std::size_t alone = allocations();
  CHECK(allocations() == alone);
  model.set_weights("dense/bias", model.weights("dense/bias"));
  CHECK(allocations() > alone);  // the digests of both replicas
  CHECK(allocations() == alone);
}
