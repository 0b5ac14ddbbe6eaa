#include "lockstep/core/rng.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <numeric>
#include <random>
#include <set>
#include <vector>

using Catch::Matchers::WithinAbs;
using lockstep::hash_name;
using lockstep::mix;
using lockstep::Philox;
using lockstep::philox4x32;
using Words = std::array<std::uint32_t, 4>;

static_assert(std::uniform_random_bit_generator<Philox>);

namespace {
/// Chi-square statistic of counts with equal expectations.
double chi_square(const std::vector<int>& counts) {
  const double expected =
      std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(counts.size());
  double sum = 0;
  for (const int count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

/// Kolmogorov-Smirnov distance between the distribution of `draws` and `cdf`.
template <class Cdf>
double distance(std::vector<double> draws, Cdf cdf) {
  std::sort(draws.begin(), draws.end());
  const double n = static_cast<double>(draws.size());
  double worst = 0;
  for (std::size_t i = 0; i < draws.size(); ++i) {
    const double p = cdf(draws[i]), below = static_cast<double>(i) / n;
    worst = std::max({worst, p - below, below + 1 / n - p});
  }
  return worst;
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

template <class Draw>
std::vector<double> draws(int n, Draw draw) {
  std::vector<double> result(static_cast<std::size_t>(n));
  for (double& x : result) x = draw();
  return result;
}

// The Kolmogorov-Smirnov distance of n draws is below 1.95 / sqrt(n) with probability 0.999. The
// seeds are fixed, so the result of the test never changes.
constexpr int many = 100'000;
const double bound = 1.95 / std::sqrt(static_cast<double>(many));
}  // namespace

TEST_CASE("Philox passes the known-answer tests of Random123") {
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) ==
        Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  CHECK(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
        Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
  CHECK(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
                   {0xa4093822u, 0x299f31d0u}) ==
        Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
}

TEST_CASE("a stream visits its counters word by word") {
  const std::uint64_t key = 0x299f31d0a4093822u, stream = 0x0370734413198a2eu;
  Philox generator(key, stream, 7);
  for (std::uint32_t block = 7; block < 10; ++block)
    for (const std::uint32_t word :
         philox4x32({block, 0, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}))
      CHECK(generator() == word);
}

TEST_CASE("a draw is a constant expression and depends on key and stream") {
  constexpr auto first = [](std::uint64_t key, std::uint64_t stream) {
    return Philox(key, stream)();
  };
  static_assert(first(1, 2) == first(1, 2));
  CHECK(first(1, 2) != first(2, 2));
  CHECK(first(1, 2) != first(1, 3));
  CHECK(first(1, 2) != first(1, 2 + (std::uint64_t{1} << 32)));
  CHECK(first(1, 2) != first(1 + (std::uint64_t{1} << 32), 2));
}

TEST_CASE("names hash to FNV-1a's published values") {
  CHECK(hash_name("") == 0xcbf29ce484222325u);
  CHECK(hash_name("a") == 0xaf63dc4c8601ec8cu);
  CHECK(hash_name("foobar") == 0x85944171f73967e8u);
}

TEST_CASE("mix is splitmix64: the published stream of seed 0") {
  CHECK(mix(0, 0) == 0xe220a8397b1dcdafu);
  CHECK(mix(0, 1) == 0x6e789e6aa1b965f4u);
  CHECK(mix(0, 2) == 0x06c45d188009454fu);
}

TEST_CASE("nearby seeds give unrelated keys") {
  for (std::uint64_t a = 0; a < 64; ++a) {
    const std::uint64_t flipped =
        mix(1, hash_name("dropout")) ^ mix(1 ^ (std::uint64_t{1} << a), hash_name("dropout"));
    CHECK(std::popcount(flipped) >= 12);
  }
}

TEST_CASE("uniform is uniform on 0 to 1") {
  Philox generator(1);
  const auto x = draws(many, [&] { return generator.uniform(); });
  CHECK(*std::min_element(x.begin(), x.end()) >= 0.0);
  CHECK(*std::max_element(x.begin(), x.end()) < 1.0);
  CHECK(distance(x, [](double v) { return v; }) < bound);
}

TEST_CASE("uniform has 53 bits") {
  Philox generator(2);
  std::uint64_t seen = 0;
  for (int i = 0; i < 1000; ++i) {
    const double scaled = generator.uniform() * 0x1p53;
    CHECK(scaled == std::floor(scaled));
    seen |= static_cast<std::uint64_t>(scaled);
  }
  CHECK(seen == (std::uint64_t{1} << 53) - 1);
}

TEST_CASE("normal is the standard normal") {
  Philox generator(3);
  const auto x = draws(many, [&] { return generator.normal(); });
  CHECK(distance(x, normal_cdf) < bound);
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / many;
  CHECK_THAT(mean, WithinAbs(0.0, 4 / std::sqrt(static_cast<double>(many))));
}

TEST_CASE("truncated_normal is the standard normal within two standard deviations") {
  Philox generator(4);
  const auto x = draws(many, [&] { return generator.truncated_normal(); });
  CHECK(*std::min_element(x.begin(), x.end()) > -2.0);
  CHECK(*std::max_element(x.begin(), x.end()) < 2.0);
  const double low = normal_cdf(-2.0), inside = normal_cdf(2.0) - low;
  CHECK(distance(x, [&](double v) { return (normal_cdf(v) - low) / inside; }) < bound);
}

TEST_CASE("successive draws are not correlated") {
  Philox generator(5);
  const auto x = draws(many, [&] { return generator.uniform() - 0.5; });
  double sum = 0;
  for (std::size_t i = 1; i < x.size(); ++i) sum += x[i] * x[i - 1] * 12;
  CHECK_THAT(sum / many, WithinAbs(0.0, 4 / std::sqrt(static_cast<double>(many))));
}

TEST_CASE("neighbouring streams are not correlated") {
  double sum = 0;
  for (std::uint64_t ordinal = 0; ordinal < many; ++ordinal)
    sum += (Philox(6, ordinal).uniform() - 0.5) * (Philox(6, ordinal + 1).uniform() - 0.5) * 12;
  CHECK_THAT(sum / many, WithinAbs(0.0, 4 / std::sqrt(static_cast<double>(many))));
}

TEST_CASE("below is uniform over its range") {
  // Chi-square with 9 (6) degrees of freedom exceeds 27.9 (22.5) with probability 0.001.
  for (const auto& [n, limit] : {std::pair{10u, 27.9}, std::pair{7u, 22.5}}) {
    Philox generator(7, n);
    std::vector<int> counts(n);
    for (int i = 0; i < many; ++i) ++counts.at(generator.below(n));
    CHECK(chi_square(counts) < limit);
  }
}

TEST_CASE("below is unbiased where a remainder would be biased") {
  // With n = 3 * 2^30, `word % n` draws values of the first third twice as often as others.
  const std::uint32_t n = 3u << 30;
  Philox generator(8);
  std::vector<int> counts(3);
  for (int i = 0; i < many; ++i) {
    const std::uint32_t x = generator.below(n);
    REQUIRE(x < n);
    ++counts[x >> 30];
  }
  CHECK(chi_square(counts) < 13.8);
}

TEST_CASE("below(1) is always zero") {
  Philox generator(9);
  for (int i = 0; i < 100; ++i) CHECK(generator.below(1) == 0);
}
