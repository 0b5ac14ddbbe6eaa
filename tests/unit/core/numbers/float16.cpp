/// \file
#include "lockstep/core/numbers/float16.hpp"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

using lockstep::float16;

namespace {

/// The value by definition of the format, computed without bit casts.
double value_of(std::uint32_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 0x3FF);
  if (exponent == 31)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  return exponent == 0 ? sign * std::ldexp(fraction, -24)
                       : sign * std::ldexp(1024 + fraction, exponent - 25);
}

}  // namespace

static_assert(float(float16(1.0f)) == 1 && float16(1.0f).bits == 0x3C00);
static_assert(float16(0x1p-24f).bits == 1 && float16(65504.0f).bits == 0x7BFF);
static_assert(!std::is_convertible_v<float, float16> && std::is_convertible_v<float16, float>);
static_assert(lockstep::dtype_of<float16> == lockstep::DType::float16);
static_assert(std::is_same_v<lockstep::detail::ComputedIn<float16>::type, float>);

TEST_CASE(
    "each of the 65536 bit patterns has the value of float16 and survives a round trip through float") {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = float16::of_bits(static_cast<std::uint16_t>(bits));
    const float whole = half;
    const double expected = value_of(bits);
    if (std::isnan(expected)) {
      REQUIRE(std::isnan(whole));
      REQUIRE(std::isnan(float(float16(whole))));
      REQUIRE((float16(whole).bits & 0x8000) == (bits & 0x8000));
      continue;
    }
    REQUIRE(static_cast<double>(whole) == expected);
    REQUIRE(std::signbit(whole) == ((bits & 0x8000) != 0));
    REQUIRE(float16(whole).bits == bits);
  }
}

TEST_CASE("a float is rounded to the nearest float16, ties to even") {
  // In ascending order from zero to the largest, whose upper neighbour would be 65536.
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const double low = value_of(bits), high = bits + 1 < 0x7C00 ? value_of(bits + 1) : 65536;
    const float tie = static_cast<float>((low + high) / 2);
    REQUIRE(static_cast<double>(tie) == (low + high) / 2);
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    REQUIRE(float16(tie).bits == even);
    REQUIRE(float16(-tie).bits == (even | 0x8000));
    REQUIRE(float16(std::nextafter(tie, 0.0f)).bits == bits);
    REQUIRE(float16(std::nextafter(tie, std::numeric_limits<float>::infinity())).bits == bits + 1);
  }
}

TEST_CASE("values too large for float16 become infinite, values too small 0, and NaN stays NaN") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(float16(65519.99f).bits == 0x7BFF);
  CHECK(float16(65520.0f).bits == 0x7C00);
  CHECK(float16(-1e30f).bits == 0xFC00);
  CHECK(float16(infinity).bits == 0x7C00);
  CHECK(float16(-infinity).bits == 0xFC00);
  CHECK(float16(0x1p-25f).bits == 0);
  CHECK(float16(-0x1p-25f).bits == 0x8000);
  CHECK(float16(std::numeric_limits<float>::denorm_min()).bits == 0);
  // All bits of the NaN's fraction are in the lower half, which is dropped.
  CHECK(std::isnan(float(float16(std::bit_cast<float>(std::uint32_t{0x7F800001})))));
  CHECK(std::isnan(float(float16(std::bit_cast<float>(std::uint32_t{0xFFFFFFFF})))));
}
