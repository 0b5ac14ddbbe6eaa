/// \file
/// An output in blocks on the CPU: the numbers of the whole output, for 50,257 classes too, and the memory
/// that both need.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/cpu.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/model/memory_plan.hpp"
#include "support/peak_memory.hpp"

namespace {

namespace ls = lockstep;
using Label = std::int32_t;
constexpr int steps = 64, vocabulary = 50'257;
constexpr std::size_t row = sizeof(float) * vocabulary;

template <class Layer>
struct Whole : ls::Sequential<Layer> {};
template <class Layer>
using Blocks = ls::InBlocks<Layer>;

/// Words of a text; the last product has a matrix of its own, or that of the words.
template <template <class> class Last>
struct Nets {
  struct Large : ls::Sequential<ls::Input<steps>, ls::Embedding<31, 3>, ls::Dense<2, ls::tanh>,
                                Last<ls::Dense<vocabulary>>> {};
  struct Tied : ls::Sequential<ls::Input<steps>, ls::Shared<"words", ls::Embedding<vocabulary, 2>>,
                               ls::Dense<2, ls::tanh>, Last<ls::TiedDense<"words">>> {};
};

// --8<-- [start:words]
struct Gpt2Words : ls::Sequential<ls::Input<1024>, ls::Shared<"tokens", ls::Embedding<50'257, 768>>,
                                  ls::InBlocks<ls::TiedDense<"tokens">>> {};
static_assert(ls::plan<Gpt2Words, ls::Cpu>.arena_bytes(8) < 270'000'000);  // without: 3.5 GB
// --8<-- [end:words]
struct Gpt2Whole : ls::Sequential<ls::Input<1024>, ls::Shared<"tokens", ls::Embedding<50'257, 768>>,
                                  ls::TiedDense<"tokens">> {};
static_assert(ls::plan<Gpt2Whole, ls::Cpu>.arena_bytes(8) > std::size_t{3'470'000'000});

struct Outcome {
  std::vector<double> loss, accuracy;
  std::vector<float> gradients, outputs;
  std::size_t working = 0;
  std::int64_t resident = 0;
};

template <class Net, class D>
Outcome trained(std::size_t examples) {
  const auto before = testing::begin_peak();
  ls::Model model{Net{},
                  ls::Seed{5},
                  ls::OneDevice<D>{},
                  ls::SparseCategoricalCrossentropy{.from_logits = true, .ignore_class = -1},
                  ls::SGD{.learning_rate = 0.5},
                  ls::Accuracy{.ignore_class = -1}};
  std::vector<float> x(examples * steps);
  std::vector<Label> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i * i % 31);
    y[i] = i % 7 == 3 ? -1 : static_cast<Label>(i * 7919 % vocabulary);
  }
  Outcome result;
  for (int i = 0; i < 2; ++i) {
    const ls::Logs logs = model.train_on_batch(x, y);
    result.loss.push_back(logs["loss"]);
    result.accuracy.push_back(logs["accuracy"]);
  }
  const auto g = model.gradients_of(model.batch(x, y));
  result.gradients.assign(g.values().begin(), g.values().end());
  result.working = model.memory().working;
  if (before) result.resident = testing::memory_of_this_process("VmHWM") - *before;
  const ls::Logs logs = model.test_on_batch(x, y);
  result.loss.push_back(logs["loss"]);
  result.accuracy.push_back(logs["accuracy"]);
  const ls::Predictions<float> p = model.predict(std::span(x).first(steps));
  result.outputs.assign(p.elements().begin(), p.elements().end());
  return result;
}

/// The largest difference, of values of which the largest is 1.
template <class T>
double distance(const std::vector<T>& a, const std::vector<T>& b) {
  double most = 0, scale = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a.at(i)) - static_cast<double>(b[i])));
    scale = std::max(scale, std::abs(static_cast<double>(b[i])));
  }
  return a.size() == b.size() ? most / scale : 1;
}

template <class A, class B>
void is_as_whole() {
  constexpr std::size_t examples = 6;  // 384 rows: 160, 160, 64
  const Outcome blocks = trained<B, ls::Cpu>(examples), whole = trained<A, ls::Cpu>(examples);
  CHECK(distance(blocks.loss, whole.loss) < 1e-6);
  CHECK(blocks.accuracy == whole.accuracy);
  CHECK(distance(blocks.gradients, whole.gradients) < 1e-6);
  CHECK(distance(blocks.outputs, whole.outputs) < 1e-6);
  // Outputs and gradients of all rows, instead of those of 160.
  constexpr auto& of_blocks = ls::plan<B, ls::Cpu>;
  constexpr auto& of_whole = ls::plan<A, ls::Cpu>;
  static_assert(of_whole.example_bytes >= 2 * steps * row);
  static_assert(of_blocks.example_bytes < 64 * 1024);
  static_assert(of_blocks.step_bytes < 2 * 160 * row + 3 * row + 4096);
  CHECK(whole.working >= 2 * examples * steps * row);
  CHECK(blocks.working >= of_blocks.arena_bytes(examples));
  CHECK(blocks.working + 2 * (examples * steps - 160) * row < whole.working + 4 * row);
  if (blocks.resident > 0 && whole.resident > 0)
    CHECK(blocks.resident + static_cast<std::int64_t>(2 * (examples * steps - 160) * row) -
              (16 << 20) <
          whole.resident);
}

}  // namespace

TEST_CASE("InBlocks: 50,257 classes on the Cpu are those of the whole output, in less memory") {
  is_as_whole<Nets<Whole>::Large, Nets<Blocks>::Large>();
}

TEST_CASE("InBlocks: 50,257 tied words on the Cpu are those of the whole output") {
  is_as_whole<Nets<Whole>::Tied, Nets<Blocks>::Tied>();
}

TEST_CASE("InBlocks: no buffer of the plan has the outputs of a batch") {
  const ls::MemoryPlan plan = ls::memory_plan<Nets<Blocks>::Large, ls::Cpu>(100);
  std::size_t top = 0;
  for (const ls::ArenaRange& b : plan.buffers) {
    CAPTURE(b.layer, b.what);
    CHECK(b.bytes < 2 * 160 * row + 4096);
    top = std::max(top, b.offset + b.bytes);
  }
  CHECK(top == plan.arena_bytes);
}

TEST_CASE("InBlocks: outputs in two bytes") {
  using Large = Nets<Blocks>::Large;
  constexpr auto& plan = ls::plan<Large, ls::CpuBFloat16>;
  static_assert(plan.converted_example_bytes == 2 * steps);
  // A block of 320 rows in both types.
  static_assert(plan.step_bytes < 2 * (row + row / 2) * 320 + 3 * row + 4096);
  const Outcome blocks = trained<Large, ls::CpuBFloat16>(6),
                whole = trained<Nets<Whole>::Large, ls::CpuBFloat16>(6);
  CHECK(distance(blocks.loss, whole.loss) < 1e-5);
  CHECK(distance(blocks.gradients, whole.gradients) < 1e-2);
}
