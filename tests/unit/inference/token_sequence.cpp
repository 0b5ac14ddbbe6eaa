#include "lockstep/inference/token_sequence.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <lockstep/reference.hpp>
#include <lockstep/text_generator.hpp>

#include "support/refusal.hpp"
#include "unit/inference/text_networks.hpp"

namespace ls = lockstep;
using namespace testing::text;
using testing::refusal;

namespace {
using Double = ls::Reference<double>;

double difference(std::span<const double> a, std::span<const double> b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

/// The identity; its kernel counts the steps that it computes, in a number of its own.
std::array<std::size_t, 3> counted{};
template <int Number>
struct CountOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  constexpr CountOp one_step() const { return {ls::shape(1, in[1])}; }
  bool operator==(const CountOp&) const = default;
};
template <int Number>
struct Count : ls::ParameterlessLayer<CountOp<Number>> {
  static constexpr std::string_view name = "count";
};
struct Counting
    : ls::Sequential<ls::Input<100>, ls::Embedding<5, 4>, Count<0>,
                     ls::MultiHeadAttention<2, 2, ls::causal>, Count<1>,
                     ls::GroupedQueryAttention<2, 1, 2, ls::causal>, Count<2>, ls::Dense<5>> {};

}  // namespace

template <int Number, ls::HostDevice D>
struct ls::Kernel<CountOp<Number>, D> : ls::KernelTraits {
  static void forward(const CountOp<Number>& op, const ls::Io<D>& io) {
    counted[Number] += io.step.count * static_cast<std::size_t>(op.in[0]);
    std::copy_n(io.x[0], io.step.count * op.in.size(), io.y);
  }
  static void backward(const CountOp<Number>& op, const ls::Io<D>& io) {
    std::copy_n(io.dy, io.step.count * op.in.size(), io.dx[0]);
  }
};

TEST_CASE("TokenSequence: has the tokens that were appended, and their logits") {
  const auto generator = random_generator<Gpt, Double>();
  auto text = generator.sequence();
  CHECK(text.size() == 0);
  CHECK(text.context() == 9);
  CHECK(text.cache_bytes() >= 2 * 2 * 9 * 6 * sizeof(double));  // layers, keys and values
  CHECK(refusal<ls::UsageError>([&] { std::ignore = text.logits(); }) ==
        "text generator: there are no logits yet; append the tokens of a prompt");
  const auto logits = text.append(std::vector<int>{3, 1, 4});
  CHECK(text.logits().data() == logits.data());
  std::ignore = text.append(1);
  CHECK(std::vector<int>(text.tokens().begin(), text.tokens().end()) ==
        std::vector<int>{3, 1, 4, 1});
}

TEST_CASE("TokenSequence: tokens that do not fit leave it as it was") {
  const auto generator = random_generator<Gpt, Double>();
  auto text = generator.sequence(), other = generator.sequence();
  std::ignore = text.append(random_tokens(7, 13));
  CHECK(refusal<ls::UsageError>([&] { std::ignore = text.append(std::vector<int>{1, 2, 3}); }) ==
        "text generator: 3 tokens do not fit into the context of 9 steps, which has 7; append "
        "fewer, or call keep_last before");
  CHECK(refusal<ls::UsageError>([&] { std::ignore = text.append(std::vector<int>()); }) ==
        "text generator: there is no token to append; begin with one, such as that of a line's "
        "end");
  CHECK(text.size() == 7);
  for (const int wrong : {13, -1})
    CHECK(refusal<ls::UsageError>([&] {
            std::ignore = text.append(wrong);
          }).find("indices must be whole numbers from 0 to 12") != std::string::npos);
  // The first of two tokens is computed before the second one is refused.
  CHECK_THROWS_AS(text.append(std::vector<int>{2, 99}), ls::UsageError);
  CHECK(text.size() == 7);
  CHECK_THROWS_AS(text.logits(), ls::UsageError);
  std::vector<int> all = random_tokens(7, 13);
  all.push_back(5);
  CHECK(difference(text.append(5), other.append(all)) < 1e-12);
}

TEST_CASE("TokenSequence: the last tokens move to the begin of the context") {
  const auto generator = random_generator<Gpt, Double>();
  auto text = generator.sequence(), other = generator.sequence();
  const auto tokens = random_tokens(9, 13);
  std::ignore = text.append(tokens);
  CHECK(refusal<ls::UsageError>([&] { text.keep_last(10); }) ==
        "text generator: cannot keep the last 10 tokens; the sequence has 9");
  text.keep_last(4);
  CHECK(difference(text.logits(), other.append(std::span(tokens).last(4))) < 1e-12);
  CHECK(difference(text.append(7), other.append(7)) < 1e-12);
  text.keep_last(0);
  CHECK(text.size() == 0);
  CHECK_THROWS_AS(text.logits(), ls::UsageError);
  other.keep_last(0);
  CHECK(difference(text.append(2), other.append(2)) == 0);
}

TEST_CASE("TokenSequence: text goes on where it ended") {
  const auto generator = random_generator<Llama<33, 16>, Double>();
  const std::vector<int> prompt{1, 2, 3};
  const ls::GenerateOptions greedy{.tokens = 20, .sampler = {.temperature = 0}};
  const auto whole = generator.generate(prompt, greedy);
  auto text = generator.sequence();
  CHECK_THROWS_AS(text.generate(greedy), ls::UsageError);  // no prompt
  std::ignore = text.append(prompt);
  ls::GenerateOptions part = greedy;
  part.tokens = 8;
  auto made = text.generate(part);
  CHECK(text.size() == prompt.size() + 7);  // the last one is not appended
  std::ignore = text.append(made.back());
  part.tokens = 12;
  const auto rest = text.generate(part);
  made.insert(made.end(), rest.begin(), rest.end());
  CHECK(made == whole);
}

TEST_CASE("TokenSequence: a token costs one step of each layer, wherever it is") {
  using Steps = std::array<std::size_t, 3>;
  const auto generator = random_generator<Counting, Double>();
  auto text = generator.sequence();
  const auto steps_of = [&](std::size_t tokens) {
    counted = {};
    std::ignore = text.append(random_tokens(tokens, 5));
    return counted;
  };
  CHECK(steps_of(1) == Steps{1, 1, 1});
  // A prompt: after the last attention layer only its last token.
  CHECK(steps_of(77) == Steps{77, 77, 1});
  for (int i = 0; i < 22; ++i) CHECK(steps_of(1) == Steps{1, 1, 1});
}
