#include <omp.h>

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <cstddef>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/predictor.hpp>
#include <lockstep/text_generator.hpp>

#include "support/allocation_counter.hpp"
#include "support/temporary_folder.hpp"

namespace ls = lockstep;

namespace {

struct Net : ls::Sequential<ls::Input<12, 12, 1>, ls::Conv2D<8, 3>, ls::ReLU, ls::MaxPooling2D<>,
                            ls::BatchNormalization<>, ls::Conv2D<8, 3>, ls::Flatten,
                            ls::Dropout<ls::rate(0.25f)>, ls::Dense<32>, ls::ReLU, ls::Dense<10>,
                            ls::Softmax> {};

auto model_of(std::uint64_t seed) {
  return ls::Model(Net{}, ls::Seed{seed}, ls::OneDevice<ls::Cpu>{.on = {.threads = 1}},
                   ls::MeanSquaredError{}, ls::SGD{});
}

struct Text
    : ls::Sequential<
          ls::Input<64>, ls::Embedding<50, 32>, ls::PositionEmbedding<64>,
          ls::Repeat<2, ls::Sequential<
                            ls::Residual<ls::Sequential<ls::LayerNormalization<>,
                                                        ls::MultiHeadAttention<4, 8, ls::causal>>>,
                            ls::Residual<ls::Sequential<ls::RMSNormalization<>, ls::SwiGLU<64>,
                                                        ls::Dense<32>>>>>,
          ls::LayerNormalization<>, ls::Dense<50>> {};

}  // namespace

TEST_CASE("Predictor: a call allocates nothing after the first of its size") {
  const ls::Predictor predictor(model_of(1));
  const std::vector<float> x(40 * 144, 0.5f);
  std::vector<float> y(40 * 10);
  for (const std::size_t count : {1u, 3u, 40u}) {
    const std::span<const float> in(x.data(), count * 144);
    const std::span<float> out(y.data(), count * 10);
    const testing::AllocationCounter first;
    predictor(in, out);
    CAPTURE(count);
    if (count > 1) CHECK(first.count() > 0);  // the constructor prepares one example
    const testing::AllocationCounter counter;
    for (int i = 0; i < 20; ++i) predictor(in, out);
    CHECK(counter.count() == 0);
  }
  const testing::AllocationCounter counter;  // sizes in turn
  for (int i = 0; i < 10; ++i)
    predictor(std::span(x).first((i % 2 == 0 ? 1 : 3) * 144u),
              std::span(y).first((i % 2 == 0 ? 1 : 3) * 10u));
  CHECK(counter.count() == 0);
}

TEST_CASE("Predictor: after reserve no number of examples up to its own allocates") {
  ls::Predictor predictor(model_of(1));
  predictor.reserve(1, 40);
  const std::vector<float> x(40 * 144, 0.5f);
  std::vector<float> y(40 * 10);
  const testing::AllocationCounter counter;
  for (std::size_t count = 1; count <= 40; ++count)
    predictor(std::span(x).first(count * 144), std::span(y).first(count * 10));
  CHECK(counter.count() == 0);
}

TEST_CASE("Predictor: a call that gets fewer threads than others is refused") {
  const ls::Predictor<Net, ls::Cpu> predictor(model_of(1), {.on = {.threads = 2}});
  const std::vector<float> x(144, 0.5f);
  std::vector<float> first(10), y(10);
  predictor(x, first);
  std::string refused;
  const auto inside = [&] {
    if (omp_get_thread_num() == 0) try {
        predictor(x, y);
      } catch (const ls::UsageError& e) {
        refused = e.what();
      }
  };
  GOMP_parallel([](void* f) { (*static_cast<decltype(inside)*>(f))(); },
                const_cast<void*>(static_cast<const void*>(&inside)), 2, 0);
  CHECK(refused.find("2 threads") != std::string::npos);
  for (int i = 0; i < 20; ++i) {
    predictor(x, y);
    CHECK(y == first);
  }
}

TEST_CASE("Predictor: 8 threads allocate nothing after reserve, also while weights change") {
  const TemporaryFolder folder;
  model_of(2).save_weights(folder / "w");
  ls::Predictor predictor(model_of(1));
  predictor.reserve(9, 3);
  std::atomic<int> ready{0}, reloads{0};
  std::atomic<std::size_t> allocations{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      const std::vector<float> x(3 * 144, 0.5f);
      std::vector<float> y(3 * 10);
      ++ready;
      while (ready < 8) std::this_thread::yield();
      const testing::AllocationCounter counter;
      for (int i = 0; i < 100 || reloads < 5; ++i) predictor(x, y);
      allocations += counter.count();
    });
  for (; reloads < 5; ++reloads) predictor.load_weights(folder / "w");
  for (std::thread& thread : threads) thread.join();
  CHECK(allocations == 0);
}

TEST_CASE("TextGenerator: a step allocates nothing, neither does drawing its token") {
  const ls::TextGenerator generator(
      ls::Model(Text{}, ls::OneDevice<ls::Cpu>{.on = {.threads = 1}},
                ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::SGD{}));
  auto text = generator.sequence();
  ls::Sampler sample({.top_k = 10}), greedy({.temperature = 0});
  const std::vector<int> prompt{1, 2, 3, 4, 5, 6, 7};
  const testing::AllocationCounter first;
  int token = sample(text.append(prompt));
  CHECK(first.count() > 0);  // blocks of a prompt are prepared
  const testing::AllocationCounter counter;
  while (text.size() < text.context()) {
    token = sample(text.append(token));
    std::ignore = greedy(text.logits());
  }
  CHECK(counter.count() == 0);
  auto other = generator.sequence();
  const testing::AllocationCounter again;
  std::ignore = other.append(prompt);  // in the blocks that are prepared
  CHECK(again.count() == 0);
}
