#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>

#include "support/allocation_counter.hpp"

namespace ls = lockstep;

namespace {

struct Net
    : ls::Sequential<ls::Input<12, 12, 1>, ls::Conv2D<8, 3, ls::kernel_regularizer(ls::L2{1e-4})>,
                     ls::ReLU, ls::MaxPooling2D<>, ls::Flatten, ls::Dropout<ls::rate(0.25f)>,
                     ls::Dense<16>, ls::GELU, ls::Dense<10>> {};

/// Counts what is allocated from the end of one step to the end of the next, data and callbacks
/// included.
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

template <class Optimizer>
std::size_t allocations_of_a_step(Optimizer optimizer, int threads) {
  constexpr std::size_t examples = 45;  // the last batch is smaller
  std::vector<std::uint8_t> pixels(examples * 144);
  std::vector<std::int32_t> labels(examples);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 31);
  for (std::size_t i = 0; i < examples; ++i) labels[i] = static_cast<std::int32_t>(i % 10);
  const auto data = ls::tensors(pixels, ls::shape(12, 12, 1), labels) | ls::rescale(1.0 / 255) |
                    ls::shuffle(20) | ls::batch(8);
  ls::Model model{Net{}, ls::OneDevice<ls::Cpu>{.on = {.threads = threads}},
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, optimizer,
                  ls::Accuracy{}};
  auto counted = std::make_shared<StepAllocations>();
  model.fit(data, {.epochs = 4, .callbacks = {counted}, .progress = ls::ProgressStyle::none});
  REQUIRE(counted->steps == 15);
  return counted->allocations;
}

}  // namespace

TEST_CASE("A training step on the Cpu allocates nothing, also with a smaller last batch") {
  CHECK(allocations_of_a_step(ls::SGD{.learning_rate = 0.01, .momentum = 0.9}, 1) == 0);
  CHECK(allocations_of_a_step(ls::Adam{}, 2) == 0);
}

TEST_CASE("The counter of this test sees an allocation in a step") {
  const testing::AllocationCounter counter;
  const auto p = std::make_unique<int>(1);
  CHECK(counter.count() == 1);
}
