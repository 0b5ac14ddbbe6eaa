#include "lockstep/inference/text_generator.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>
#include <lockstep/text_generator.hpp>

#include "support/refusal.hpp"
#include "support/temporary_folder.hpp"
#include "unit/inference/text_networks.hpp"

namespace ls = lockstep;
using namespace testing::text;
using testing::refusal;

namespace {

using Double = ls::Reference<double>;

/// A custom op that states its form for one step: features are halved.
struct HalfOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  constexpr HalfOp one_step() const { return {ls::shape(1, in[1])}; }
  bool operator==(const HalfOp&) const = default;
};
struct Half : ls::ParameterlessLayer<HalfOp> {
  static constexpr std::string_view name = "half";
};
struct Custom : ls::Sequential<ls::Input<6>, ls::Embedding<5, 4>,
                               ls::MultiHeadAttention<2, 2, ls::causal>, Half, ls::Dense<5>> {};

/// The greedy tokens, each from a whole window of nanoGPT: the last tokens, without a cache.
template <class Net>
std::vector<int> greedy_by_windows(const ls::Predictor<Net, Double>& predictor,
                                   std::vector<int> tokens, std::size_t count) {
  constexpr std::size_t context = Net::input_shape[0], vocabulary = Net::output_shape[1];
  std::vector<int> made;
  while (made.size() < count) {
    const std::size_t used = std::min(tokens.size(), context);
    std::vector<double> window(context);
    std::copy(tokens.end() - static_cast<std::ptrdiff_t>(used), tokens.end(), window.begin());
    const auto all = predictor.predict(window);
    const auto row = all.elements().subspan((used - 1) * vocabulary, vocabulary);
    made.push_back(static_cast<int>(std::max_element(row.begin(), row.end()) - row.begin()));
    tokens.push_back(made.back());
  }
  return made;
}

/// Parameters are sin(1), sin(4), sin(9), ...; `logits` are those after a full context.
template <class Net>
void check_golden(const std::vector<int>& tokens, const std::vector<double>& logits) {
  double n = 0;
  const WeightsFile<Net, double> weights([&](const std::string&, double& value) {
    ++n;
    value = std::sin(n * n);
  });
  const ls::TextGenerator<Net, Double> generator(weights.path);
  constexpr std::size_t context = Net::input_shape[0];
  const std::vector<int> prompt{4, 0, 9};
  CHECK(generator.generate(
            prompt, {.tokens = 16, .sampler = {.temperature = 0}, .keep = context - 1}) == tokens);
  auto text = generator.sequence();
  std::ignore = text.append(prompt);
  for (std::size_t i = 0; text.size() < context; ++i) std::ignore = text.append(tokens[i]);
  REQUIRE(logits.size() == text.logits().size());
  for (std::size_t v = 0; v < logits.size(); ++v)
    CHECK(std::abs(text.logits()[v] - logits[v]) < 1e-12);
}

}  // namespace

template <ls::HostDevice D>
struct ls::Kernel<HalfOp, D> : ls::KernelTraits {
  static void forward(const HalfOp& op, const ls::Io<D>& io) {
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i) io.y[i] = io.x[0][i] / 2;
  }
  static void backward(const HalfOp& op, const ls::Io<D>& io) {
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i) io.dx[0][i] = io.dy[i] / 2;
  }
};

TEST_CASE("TextGenerator: the logits of each step are those of a whole window") {
  for (const std::size_t block : {1u, 3u, 32u}) {
    check_steps<Gpt, Double>(1e-12, block);
    check_steps<Windowed, Double>(1e-12, block);
    check_steps<Graphs, Double>(1e-12, block);
    check_steps<SharedAttention, Double>(1e-12, block);
  }
  check_steps<Short, Double>(1e-12);
  check_steps<Custom, Double>(1e-12);
  check_steps<Llama<8>, Double>(1e-12);
  check_steps<Llama<33, 16, ls::rotary_pairs(100, 2)>, Double>(1e-12, 8);
  check_steps<Llama<5, 7, ls::Rotary{}>, Double>(1e-12);
  check_steps<Gpt, ls::Reference<float>>(1e-5);
  check_steps<Llama<8>, ls::Reference<float>>(1e-5);
}

TEST_CASE("TextGenerator: greedy text is that of windows, also after the end of the context") {
  const auto weights = random_weights<Gpt, double>();
  const ls::TextGenerator<Gpt, Double> generator(weights.path);
  const ls::Predictor<Gpt, Double> predictor(weights.path);
  const std::vector<int> prompt{4, 0, 9};
  std::vector<int> seen;
  const auto made =
      generator.generate(prompt, {.tokens = 30, .sampler = {.temperature = 0}, .keep = 8},
                         [&](int token) { seen.push_back(token); });
  CHECK(made.size() == 30);
  CHECK(seen == made);
  CHECK(made == greedy_by_windows<Gpt>(predictor, prompt, 30));
  // Fewer tokens stay: equal until the context is full, and again the greedy token of what is left.
  const auto halves = generator.generate(prompt, {.tokens = 30, .sampler = {.temperature = 0}});
  CHECK(std::equal(made.begin(), made.begin() + 7, halves.begin()));
  std::vector<int> all = prompt;
  all.insert(all.end(), halves.begin(), halves.begin() + 7);  // one more than the context has
  const std::vector<int> left(all.end() - 5, all.end());      // half of 9, and the new one
  CHECK(greedy_by_windows<Gpt>(predictor, left, 4) ==
        std::vector<int>(halves.begin() + 7, halves.begin() + 11));
}

TEST_CASE("TextGenerator: greedy text and logits are those of PyTorch in float64") {
  // Computed by tests/golden/make_text.py, each token from a whole window.
  check_golden<Gpt>({5, 6, 6, 6, 6, 5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6},
                    {0.65121336087626691, -2.0732801899009492, -1.9118116179841049,
                     1.0164135688760876, 1.5308419681742738, 1.8884124768751023, 2.3066219204562661,
                     -0.60500945328063283, -0.21841066321056157, -0.64761932148491208,
                     -0.81426015081939185, -1.6417299561225216, 1.5825701253885727});
  check_golden<Llama<8>>(
      {12, 8, 8, 8, 8, 8, 8, 8, 11, 11, 11, 11, 11, 11, 11, 11},
      {-0.89689887649891065, 0.64233515642804795, -1.9136545019903843, 0.4336290096680202,
       -1.2158646036266769, -1.8560406647568126, -0.26784180646916833, 0.32235894368525309,
       2.0124115353534053, 1.1996708997192964, -1.3736753451567123, 0.067995489824174651,
       0.61068351197303028, -1.6930841872409648, 1.8525416683422522, -0.61327005664260126,
       0.35371159783692124});
}

TEST_CASE("TextGenerator: a seed gives one text, and a stop token ends it") {
  const auto generator = random_generator<Llama<8>, Double>();
  const std::vector<int> prompt{1, 2};
  const auto text = [&](std::uint64_t seed) {
    return generator.generate(prompt, {.tokens = 40, .sampler = {.top_k = 5, .seed = seed}});
  };
  const auto first = text(1);
  CHECK(first == text(1));
  CHECK(first != text(2));
  const int stop = first[10];
  const auto ended =
      generator.generate(prompt, {.tokens = 40, .sampler = {.top_k = 5, .seed = 1}, .stop = stop});
  const auto end = std::find(first.begin(), first.end(), stop);
  CHECK(ended == std::vector<int>(first.begin(), end + 1));
  CHECK(generator.generate(prompt, {.tokens = 0}).empty());
  // No limit but the stop token.
  const auto unlimited = generator.generate(
      prompt, {.tokens = SIZE_MAX, .sampler = {.top_k = INT_MAX, .seed = 2}, .stop = stop});
  CHECK(unlimited.back() == stop);
}

TEST_CASE("TextGenerator: weights come from a file or a model") {
  const TemporaryFolder folder;
  ls::Model model(Gpt{}, ls::OneDevice<Double>{}, ls::SparseCategoricalCrossentropy{}, ls::SGD{});
  model.save_weights(folder / "w.safetensors");
  const ls::TextGenerator<Gpt, Double> of_file(folder / "w.safetensors");
  const ls::TextGenerator of_model(model);
  const auto tokens = random_tokens(9, 13);
  auto a = of_file.sequence(), b = of_model.sequence();
  const auto x = a.append(tokens), y = b.append(tokens);
  CHECK(std::equal(x.begin(), x.end(), y.begin(), y.end()));
  CHECK(of_file.memory().weights == Gpt::trainable_count * sizeof(double));
  CHECK_THROWS_AS((ls::TextGenerator<Llama<8>, Double>(folder / "w.safetensors")),
                  ls::WeightsError);
}

TEST_CASE("TextGenerator: sequences of several threads share weights and nothing else") {
  const auto generator = random_generator<Llama<8>, Double>();
  constexpr std::size_t texts = 24;
  const auto text = [&](std::size_t i) {
    return generator.generate(std::vector<int>{static_cast<int>(i % 17), 3},
                              {.tokens = 20, .sampler = {.seed = i}});
  };
  std::vector<std::vector<int>> alone(texts), together(texts);
  for (std::size_t i = 0; i < texts; ++i) alone[i] = text(i);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < texts; i += 8) together[i] = text(i);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(alone == together);
}

TEST_CASE("TextGenerator: a generator may move while it has sequences") {
  auto first = random_generator<Gpt, Double>();
  auto text = first.sequence(), other = first.sequence();
  std::ignore = text.append(3);
  const auto second = std::move(first);
  const std::vector<int> tokens{3, 5};
  const auto x = text.append(5), y = other.append(tokens);
  double error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) error = std::max(error, std::abs(x[i] - y[i]));
  CHECK(error < 1e-12);
}

TEST_CASE("TextGenerator: invalid options are refused with what to pass") {
  CHECK(refusal<ls::UsageError>([&] {
          std::ignore = random_generator<Gpt, Double>({.prompt_steps = 0});
        }) == "text generator: prompt_steps is 0; it must be at least 1");
  const auto generator = random_generator<Gpt, Double>();
  CHECK(refusal<ls::UsageError>([&] {
          std::ignore = generator.generate(std::vector<int>{1}, {.keep = 9});
        }) == "text generator: keep is 9; it must be less than the 9 steps of the context");
  CHECK(refusal<ls::UsageError>([&] {
          std::ignore = generator.generate(std::vector<int>{1}, {.sampler = {.temperature = -1}});
        }) == "sampler: temperature is -1; it must be finite and at least 0");
}
