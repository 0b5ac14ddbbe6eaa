/// \file
/// Element-wise sums, and conversions between float and bfloat16.
#include "lockstep/devices/cpu/elements.hpp"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/core/rng.hpp"

using namespace lockstep;
using namespace lockstep::detail;

namespace {

/// Test values: each bfloat16, the tie above it and its neighbours, and random low bits.
std::vector<float> all_kinds() {
  std::vector<float> values;
  Philox g(3);
  for (std::uint32_t high = 0; high < 65536; ++high)
    for (const std::uint32_t low : {0u, 0x7FFFu, 0x8000u, 0x8001u, g.below(65536)})
      values.push_back(std::bit_cast<float>(high << 16 | low));
  return values;
}

bool is_tiny(float x) { return std::abs(x) < 0x1p-126f; }

/// Checks that vector stores of `Width` bytes round like the scalar conversion.
template <std::size_t Width>
void stores_as_scalar(std::size_t bytes) {
  const auto x = all_kinds();
  std::vector<bfloat16> y(x.size());
  const auto loop = [&](auto width) __attribute__((always_inline)) {
    for (std::size_t i = 0; i < x.size(); i += lanes_of<float, width.value>) {
      Lanes<float, width.value> v;
      load(v, x.data() + i);
      store(y.data() + i, v);
    }
  };
  REQUIRE(x.size() % 16 == 0);
  run_with_vectors_of(bytes, loop);
  for (std::size_t i = 0; i < x.size(); ++i) {
    CAPTURE(std::bit_cast<std::uint32_t>(x[i]));
    const bool same = y[i].bits == bfloat16(x[i]).bits;
    const bool flushed = is_tiny(x[i]) && (y[i].bits & 0x7FFF) == 0;
    if (!same && !flushed) REQUIRE(y[i].bits == bfloat16(x[i]).bits);
  }
}

}  // namespace

TEST_CASE("vectors round to bfloat16 like scalars, including ties, infinities and NaN") {
  if (!has_vectors()) SKIP("this machine has no vectors");
  stores_as_scalar<vector_bytes>(vector_bytes);
  if (has_bfloat16_vectors()) stores_as_scalar<wide_vector_bytes>(wide_vector_bytes);
}

TEST_CASE("each bfloat16 converts to float and back, for any number of threads") {
  std::vector<bfloat16> half;
  for (int repeat = 0; repeat < 3; ++repeat)
    for (std::uint32_t bits = 0; bits < 65536; ++bits)
      half.push_back(bfloat16::of_bits(static_cast<std::uint16_t>(bits)));
  half.resize(half.size() - 5);  // leaves a remainder after whole vectors
  for (const int threads : {1, 2, 3}) {
    std::vector<float> whole(half.size());
    std::vector<bfloat16> back(half.size());
    convert_elements(threads, half.data(), whole.data(), half.size());
    convert_elements(threads, whole.data(), back.data(), half.size());
    for (std::size_t i = 0; i < half.size(); ++i) {
      const float expected = half[i];
      REQUIRE(std::bit_cast<std::uint32_t>(whole[i]) == std::bit_cast<std::uint32_t>(expected));
      if (!is_tiny(expected)) REQUIRE(back[i].bits == bfloat16(expected).bits);
    }
  }
}

TEST_CASE("vectorized sums equal scalar sums, for any length and in place") {
  Philox g(4);
  for (const std::size_t n : {1u, 7u, 8u, 15u, 16u, 17u, 31u, 50u, 40000u, 70003u}) {
    std::vector<float> a(n), b(n), sum(n);
    std::vector<bfloat16> half_a(n), half_b(n), half_sum(n);
    for (std::size_t i = 0; i < n; ++i) {
      a[i] = static_cast<float>(g.normal());
      b[i] = static_cast<float>(g.normal());
      half_a[i] = bfloat16(a[i]);
      half_b[i] = bfloat16(b[i]);
    }
    for (const int threads : {1, 2}) {
      add_elements(threads, a.data(), b.data(), sum.data(), n);
      add_elements(threads, half_a.data(), half_b.data(), half_sum.data(), n);
      auto in_place = half_a;
      add_elements(threads, in_place.data(), half_b.data(), in_place.data(), n);
      for (std::size_t i = 0; i < n; ++i) {
        REQUIRE(sum[i] == a[i] + b[i]);
        REQUIRE(half_sum[i].bits == bfloat16(float(half_a[i]) + float(half_b[i])).bits);
        REQUIRE(in_place[i].bits == half_sum[i].bits);
      }
    }
  }
}
