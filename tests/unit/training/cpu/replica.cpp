/// \file
/// With one replica, the optimizer updates weights within backward. A limit on the gradient's norm
/// prevents that; a limit that is never reached, and a power of two, does not change a bit.
#include "lockstep/training/step/replica.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>

#include "unit/training/hidden_nan.hpp"

namespace ls = lockstep;

namespace {

/// On one thread the first dense layer uses lockstep's tiles, the second oneDNN.
struct Net : ls::Sequential<ls::Input<32, 32, 1>, ls::Conv2D<16, 3>, ls::ReLU, ls::MaxPooling2D<>,
                            ls::Flatten, ls::Dense<64>, ls::ReLU, ls::Dense<10>> {};

template <class Optimizer, class Strategy>
std::vector<std::vector<float>> trained_by(const Strategy& strategy, const Optimizer& optimizer) {
  ls::Model model{Net{}, strategy, ls::SparseCategoricalCrossentropy{.from_logits = true},
                  optimizer};
  constexpr std::size_t count = 32, size = 32 * 32;
  ls::Philox g(3);
  std::vector<float> x(count * size);
  for (float& v : x) v = static_cast<float>(g.normal());
  std::vector<std::int32_t> y(count);
  for (std::int32_t& v : y) v = static_cast<std::int32_t>(g.below(10));
  for (int i = 0; i < 3; ++i) model.train_on_batch(x, y);
  std::vector<std::vector<float>> result;
  for (const auto& p : model.parameters()) {
    result.push_back(model.weights(p.name));
    result.push_back(model.gradients(p.name));
  }
  return result;
}

template <class Optimizer>
std::vector<std::vector<float>> trained(Optimizer optimizer, int threads, double bound) {
  optimizer.with.global_clipnorm = bound;
  return trained_by(ls::OneDevice<ls::Cpu>{.on = {.threads = threads}}, optimizer);
}

/// SGD that counts how often its kernel is called.
int updates = 0;
struct CountedOp : ls::SGDOp {
  template <class T>
  Rule<T> rule() const {
    ++updates;
    return ls::SGDOp::rule<T>();
  }
};
struct Counted : ls::SGD {
  CountedOp op(double rate, std::uint64_t step) const { return {ls::SGD::op(rate, step)}; }
};
template <class Strategy>
int updates_of_a_step(const Strategy& strategy, double bound = 0) {
  Counted optimizer;
  optimizer.with.global_clipnorm = bound;
  updates = 0;
  trained_by(strategy, optimizer);
  CHECK(updates % 3 == 0);
  return updates / 3;
}

template <class Optimizer>
void check_equal(const Optimizer& optimizer) {
  for (const int threads : {1, 2}) {
    INFO(Optimizer::name << ", threads " << threads);
    const auto at_once = trained(optimizer, threads, 0),
               later = trained(optimizer, threads, 0x1p60);
    REQUIRE(at_once.size() == 12);
    CHECK(at_once == later);
  }
}

}  // namespace

TEST_CASE(
    "an update within backward gives the same bits as one after it, and keeps the gradients") {
  check_equal(ls::SGD{.learning_rate = 0.01});
  check_equal(ls::SGD{.learning_rate = 0.01, .momentum = 0.9, .nesterov = true});
  check_equal(ls::Adam{.learning_rate = 0.01});
  // Two segments whose boundary is not a layer's.
  check_equal(ls::AdamW{.learning_rate = 0.01, .with = {.exclude_from_weight_decay = {"bias"}}});
}

TEST_CASE("backward updates weights only with one replica that exchanges nothing") {
  const ls::OneDevice<ls::Cpu> alone{.on = {.threads = 1}};
  // Each layer, and parts of the first dense one if its weights exceed the processor's cache.
  CHECK(updates_of_a_step(alone) >= 3);
  // A norm needs all gradients first, and then each of the six parameters is updated alone.
  CHECK(updates_of_a_step(alone, 0x1p60) == 6);
  CHECK(updates_of_a_step(ls::OneDevice<ls::Cpu>{.on = {.threads = 1}, .virtual_shards = 2}) == 1);
  // A custom strategy's exchange may change gradients even with one replica.
  CHECK(updates_of_a_step(ls::Mirrored<ls::Cpu>{.replicas = 1, .on = {.threads = 1}}) == 1);
}

TEST_CASE("TerminateOnNaN detects NaN that the loss hides after the same step on all devices") {
  CHECK(hidden_nan::steps(ls::OneDevice<ls::Reference<float>>{}) == hidden_nan::expected_steps);
  CHECK(hidden_nan::steps(ls::OneDevice<ls::Cpu>{}) == hidden_nan::expected_steps);
  CHECK(hidden_nan::steps(ls::Mirrored<ls::Cpu>{.replicas = 2}) == hidden_nan::expected_steps);
  const auto message =
      hidden_nan::train<hidden_nan::Net>(ls::OneDevice<ls::Cpu>{}, hidden_nan::nowhere, "conv2d/")
          .message;
  INFO(message);
  CHECK(message.find("step 1 (epoch 1, batch 1)") != message.npos);
  CHECK(message.find("conv2d/kernel") != message.npos);
}

TEST_CASE("one NaN in the data makes losses NaN, and fit warns once and names the weights") {
  const auto check = [](const auto& strategy) {
    const std::size_t at = 13 * 4 + 2;  // in the fourth batch
    const auto ended = hidden_nan::train<hidden_nan::Table>(strategy, at, {}, false);
    CHECK(ended.steps == 18);
    CHECK(std::isnan(ended.loss));
    CHECK(std::isnan(ended.evaluated));
    REQUIRE(ended.warnings.size() == 1);
    INFO(ended.warnings[0]);
    for (const char* part : {"not finite after epoch 1: ", "dense/kernel", "dense_1/bias",
                             ".check_finite", "ls::TerminateOnNaN{} ends training"})
      CHECK(ended.warnings[0].find(part) != std::string::npos);
    // TerminateOnNaN has reported it already.
    CHECK(hidden_nan::train<hidden_nan::Table>(strategy, at).warnings.empty());
    CHECK(hidden_nan::train<hidden_nan::Table>(strategy, hidden_nan::nowhere, {}, false)
              .warnings.empty());
  };
  check(ls::OneDevice<ls::Reference<float>>{});
  check(ls::OneDevice<ls::Cpu>{});
  check(ls::Mirrored<ls::Cpu>{.replicas = 2});
}
