/// \file
/// With one replica backward lets the optimizer change weights at once. A bound on the gradient's
/// norm keeps it from that, and one that is never met, a power of two, changes no bit.
#include "lockstep/training/replica.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>

namespace ls = lockstep;

namespace {

/// On one thread the first dense layer takes tiles of our own, the second oneDNN.
struct Net : ls::Sequential<ls::Input<18, 18, 1>, ls::Conv2D<16, 3>, ls::ReLU, ls::MaxPooling2D<>,
                            ls::Flatten, ls::Dense<64>, ls::ReLU, ls::Dense<10>> {};

template <class Optimizer>
std::vector<std::vector<float>> trained(Optimizer optimizer, int threads, double bound) {
  optimizer.with.global_clipnorm = bound;
  ls::Model model{Net{}, ls::OneDevice<ls::Cpu>{.on = {.threads = threads}},
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, optimizer};
  constexpr std::size_t count = 32, size = 18 * 18;
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

TEST_CASE("an update within backward gives the bits of one after it, and keeps the gradients") {
  check_equal(ls::SGD{.learning_rate = 0.01});
  check_equal(ls::SGD{.learning_rate = 0.01, .momentum = 0.9, .nesterov = true});
  check_equal(ls::Adam{.learning_rate = 0.01});
  // Two segments, which do not end where layers do.
  check_equal(ls::AdamW{.learning_rate = 0.01, .with = {.exclude_from_weight_decay = {"bias"}}});
}
