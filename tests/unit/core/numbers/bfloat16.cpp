/// \file
#include "lockstep/core/numbers/bfloat16.hpp"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

using lockstep::bfloat16;

namespace {

/// The value by definition of the format, computed without bit casts.
double value_of(std::uint32_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(bits >> 7 & 0xFF), fraction = static_cast<int>(bits & 0x7F);
  if (exponent == 255)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  return exponent == 0 ? sign * std::ldexp(fraction, -133)
                       : sign * std::ldexp(128 + fraction, exponent - 134);
}

}  // namespace

static_assert(float(bfloat16(1.0f)) == 1 && bfloat16(1.0f).bits == 0x3F80);
static_assert(!std::is_convertible_v<float, bfloat16> && std::is_convertible_v<bfloat16, float>);
static_assert(lockstep::dtype_of<bfloat16> == lockstep::DType::bfloat16);

TEST_CASE(
    "each of the 65536 bit patterns has the right value and survives a round trip through float") {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = bfloat16::of_bits(static_cast<std::uint16_t>(bits));
    const float whole = half;
    const double expected = value_of(bits);
    if (std::isnan(expected)) {
      REQUIRE(std::isnan(whole));
      REQUIRE(std::isnan(float(bfloat16(whole))));
      REQUIRE((bfloat16(whole).bits & 0x8000) == (bits & 0x8000));
      continue;
    }
    REQUIRE(static_cast<double>(whole) == expected);
    REQUIRE(bfloat16(whole).bits == bits);
  }
}

TEST_CASE("a float is rounded to the nearest bfloat16, ties to even") {
  // In ascending order: the neighbours of `bits` are bits - 1 and bits + 1.
  for (std::uint32_t bits = 0; bits < 0x7F7F; ++bits) {
    const double low = value_of(bits), high = value_of(bits + 1), middle = (low + high) / 2;
    const float tie = static_cast<float>(middle);
    REQUIRE(static_cast<double>(tie) == middle);
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    REQUIRE(bfloat16(tie).bits == even);
    REQUIRE(bfloat16(-tie).bits == (even | 0x8000));
    REQUIRE(bfloat16(std::nextafter(tie, 0.0f)).bits == bits);
    REQUIRE(bfloat16(std::nextafter(tie, std::numeric_limits<float>::infinity())).bits == bits + 1);
  }
}

TEST_CASE("values too large for bfloat16 become infinite, and NaN stays NaN") {
  constexpr float largest = std::numeric_limits<float>::max();
  CHECK(bfloat16(largest).bits == 0x7F80);
  CHECK(bfloat16(-largest).bits == 0xFF80);
  CHECK(bfloat16(std::numeric_limits<float>::infinity()).bits == 0x7F80);
  // All bits of the NaN's fraction are in the lower half, which is dropped.
  CHECK(std::isnan(float(bfloat16(std::bit_cast<float>(std::uint32_t{0x7F800001})))));
  CHECK(std::isnan(float(bfloat16(std::bit_cast<float>(std::uint32_t{0xFFFFFFFF})))));
}

TEST_CASE("integers up to 256 are exact, 257 is not") {
  for (int i = -256; i <= 256; ++i) REQUIRE(float(bfloat16(i)) == static_cast<float>(i));
  CHECK(float(bfloat16(257)) == 256);
}
