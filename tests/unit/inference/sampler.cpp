#include "lockstep/inference/sampler.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <tuple>
#include <vector>

#include "support/refusal.hpp"

namespace ls = lockstep;
using testing::refusal;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<int> counts_of(const ls::SamplerOptions& options, const std::vector<double>& logits,
                           int draws) {
  ls::Sampler sample(options);
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) ++counts[static_cast<std::size_t>(sample(logits))];
  return counts;
}

/// Pearson's statistic of the counts against softmax(logits / temperature) over the tokens `among`.
double chi_square(const std::vector<int>& counts, const std::vector<double>& logits,
                  double temperature, const std::vector<std::size_t>& among) {
  double total = 0, draws = 0, statistic = 0;
  for (const std::size_t i : among) total += std::exp(logits[i] / temperature);
  for (const int n : counts) draws += n;
  for (const std::size_t i : among) {
    const double expected = draws * std::exp(logits[i] / temperature) / total;
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return statistic;
}

}  // namespace

TEST_CASE("Sampler: frequencies are those of the softmax") {
  const std::vector<double> logits{0.5, -1, 2, 0, 1.25, -0.3, 1.9, -2};
  std::vector<std::size_t> all(logits.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  // The 0.999 quantile of chi-square with 7 degrees of freedom is 24.3.
  for (const float temperature : {0.5f, 1.0f, 2.0f})
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      CAPTURE(temperature, seed);
      const auto counts = counts_of({.temperature = temperature, .seed = seed}, logits, 40'000);
      CHECK(chi_square(counts, logits, static_cast<double>(temperature), all) < 24.3);
    }
  // The statistic is large for another temperature.
  CHECK(chi_square(counts_of({.temperature = 0.8f}, logits, 40'000), logits, 1, all) > 200);
}

TEST_CASE("Sampler: top_k draws from the k largest logits alone") {
  const std::vector<double> logits{0.5, -1, 2, 0, 1.25, -0.3, 1.9, -2};
  const auto counts = counts_of({.top_k = 3, .seed = 5}, logits, 20'000);
  CHECK(counts[2] + counts[4] + counts[6] == 20'000);
  CHECK(chi_square(counts, logits, 1, {2, 4, 6}) < 13.8);  // 0.999 quantile, 2 degrees
  CHECK(counts_of({.top_k = 8, .seed = 5}, logits, 1000) == counts_of({.seed = 5}, logits, 1000));
  CHECK(counts_of({.top_k = 1000, .seed = 5}, logits, 1000) ==
        counts_of({.seed = 5}, logits, 1000));
}

TEST_CASE("Sampler: of equal logits the first ones count as larger") {
  const std::vector<double> logits{1, 3, 2, 3, 3, 2};
  CHECK(counts_of({.temperature = 0}, logits, 10) == std::vector<int>{0, 10, 0, 0, 0, 0});
  CHECK(counts_of({.top_k = 1}, logits, 10) == std::vector<int>{0, 10, 0, 0, 0, 0});
  const auto two = counts_of({.top_k = 2}, logits, 1000);
  CHECK(two[1] + two[3] == 1000);
  CHECK((two[1] > 400 && two[3] > 400));
  const auto four = counts_of({.top_k = 4}, logits, 1000);
  CHECK(four[1] + four[2] + four[3] + four[4] == 1000);
  CHECK((four[2] > 20 && four[5] == 0));
}

TEST_CASE("Sampler: temperature 0 is greedy, and a small one nearly so") {
  const std::vector<float> logits{-7, 3.5f, 3.4f, -1};
  ls::Sampler greedy({.temperature = 0, .seed = 9}), cold({.temperature = 1e-30f}),
      other({.seed = 4});
  int others = 0;
  for (int i = 0; i < 100; ++i) {
    CHECK(greedy(logits) == 1);
    CHECK(cold(logits) == 1);
    others += other(logits) != 1;
  }
  CHECK(others > 20);
}

TEST_CASE("Sampler: draws are a function of the seed") {
  // Computed by tests/golden/make_text.py with another implementation of Philox.
  std::vector<double> logits(10);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = std::sin(3.0 * static_cast<double>(i));
  ls::Sampler a({.temperature = 0.7f, .seed = 7}), b({.temperature = 0.7f, .seed = 8});
  std::vector<int> of_a, of_b;
  for (int i = 0; i < 12; ++i) {
    of_a.push_back(a(logits));
    of_b.push_back(b(logits));
  }
  CHECK(of_a == std::vector<int>{9, 9, 9, 5, 7, 5, 7, 9, 7, 7, 7, 8});
  CHECK(of_a != of_b);
}

TEST_CASE("Sampler: minus infinity is never drawn, NaN and infinity are refused") {
  const std::vector<double> some{-infinity, 0, -infinity, 0.5};
  const auto counts = counts_of({}, some, 1000);
  CHECK((counts[0] == 0 && counts[1] > 100 && counts[2] == 0 && counts[3] > 100));
  CHECK(counts_of({.top_k = 3}, some, 1000)[0] == 0);
  CHECK(counts_of({.temperature = 0}, some, 5)[3] == 5);
  for (const float temperature : {0.0f, 1.0f}) {
    ls::Sampler sample({.temperature = temperature});
    const auto refused = [&](std::vector<double> logits) {
      return refusal<ls::UsageError>([&] { std::ignore = sample(logits); });
    };
    CHECK(refused({1, std::nan(""), 2}) ==
          "sampler: logit 1 is nan; check the weights, which may have diverged in training");
    CHECK(refused({std::nan("")}).find("logit 0 is nan") != std::string::npos);
    CHECK(refused({1, 2, infinity}) ==
          "sampler: logit 2 is inf; check the weights, which may have diverged in training");
    CHECK(refused({-infinity, -infinity}) ==
          "sampler: all logits are minus infinity; no token has a probability");
    CHECK(refused({}) == "sampler: there are no logits");
  }
}

TEST_CASE("Sampler: invalid options are refused") {
  const auto refused = [](const ls::SamplerOptions& options) {
    return refusal<ls::UsageError>([&] { const ls::Sampler sample(options); });
  };
  CHECK(refused({.temperature = -0.5f}) ==
        "sampler: temperature is -0.5; it must be finite and at least 0");
  CHECK(refused({.temperature = std::numeric_limits<float>::quiet_NaN()}) ==
        "sampler: temperature is nan; it must be finite and at least 0");
  CHECK(refused({.temperature = std::numeric_limits<float>::infinity()}) ==
        "sampler: temperature is inf; it must be finite and at least 0");
  CHECK(refused({.top_k = -1}) ==
        "sampler: top_k is -1; it must be at least 1, or 0 for all tokens");
}
