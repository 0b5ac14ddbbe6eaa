/// \file
/// float16: IEEE 754 half precision. Invariants: two bytes, trivially copyable; a storage type
/// only, with arithmetic in float; rounds to nearest, ties to even; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "lockstep/core/dtype.hpp"
#include "lockstep/core/numbers/bfloat16.hpp"

namespace lockstep {

/// A number with 11 bits of precision (about 3 decimal digits) up to 65504; subnormal below 2^-14,
/// with 2^-24 as smallest value.
///
/// Conversion to float is implicit; the opposite conversion rounds and is explicit.
/// \code
///   const auto half = static_cast<ls::float16>(1.0f / 3);
///   const float x = 2 * half;   // 0.66650390625
/// \endcode
struct float16 {
  std::uint16_t bits;  ///< sign, 5 bits of exponent, 10 of fraction

  float16() = default;
  /// Rounds to the nearest value, ties to even; infinity from 65520 on. A double is rounded to
  /// float first.
  template <class T>
    requires std::is_arithmetic_v<T>
  explicit constexpr float16(T value) : bits(rounded(static_cast<float>(value))) {}

  constexpr operator float() const {
    const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u,
                        fraction = bits & 0x3FFu;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
    if (exponent == 0) {
      const float small = static_cast<float>(fraction) * 0x1p-24f;
      return sign != 0 ? -small : small;
    }
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  }
  static constexpr float16 of_bits(std::uint16_t bits) {
    float16 result(0.0f);
    result.bits = bits;
    return result;
  }

 private:
  static constexpr std::uint16_t rounded(float value) {
    const auto whole = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = whole >> 16 & 0x8000u, size = whole & 0x7FFFFFFFu;
    std::uint32_t half = 0;
    if (size > 0x7F800000u) {
      half = 0x7E00;                   // a quiet NaN
    } else if (size >= 0x477FF000u) {  // 65520 and above
      half = 0x7C00;
    } else if (size < 0x38800000u) {  // below 2^-14: adding 0.5 rounds to multiples of 2^-24
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3F000000u;
    } else {
      half = (size - 0x38000000u + 0xFFF + (size >> 13 & 1)) >> 13;
    }
    return static_cast<std::uint16_t>(sign | half);
  }
};

static_assert(sizeof(float16) == 2 && std::is_trivially_copyable_v<float16>);

template <>
inline constexpr DType dtype_of<float16> = DType::float16;

namespace detail {

template <>
struct ComputedIn<float16> {
  using type = float;
};

}  // namespace detail
}  // namespace lockstep
