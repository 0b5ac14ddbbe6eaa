/// \file
/// bfloat16: the upper half of a float. Invariants: two bytes, trivially copyable; a storage type
/// only, with arithmetic in float; rounds to nearest, ties to even; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "lockstep/core/dtype.hpp"
#include "lockstep/core/numbers/finite.hpp"

namespace lockstep {

/// A number with 8 bits of precision (about 2 decimal digits) and the range of float.
///
/// Conversion to float is implicit; the opposite conversion rounds and is explicit.
/// \code
///   const auto half = static_cast<ls::bfloat16>(1.0f / 3);
///   const float x = 2 * half;   // 0.66796875
/// \endcode
struct bfloat16 {
  std::uint16_t bits;  ///< sign, 8 bits of exponent, 7 of fraction

  bfloat16() = default;
  /// Rounds to the nearest value, ties to even. A double is rounded to float first.
  template <class T>
    requires std::is_arithmetic_v<T>
  explicit constexpr bfloat16(T value) : bits(rounded(static_cast<float>(value))) {}

  constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  static constexpr bfloat16 of_bits(std::uint16_t bits) {
    bfloat16 result(0.0f);
    result.bits = bits;
    return result;
  }

 private:
  static constexpr std::uint16_t rounded(float value) {
    const auto whole = std::bit_cast<std::uint32_t>(value);
    if (detail::is_nan(value))
      return static_cast<std::uint16_t>(whole >> 16 | 0x40);  // a quiet NaN
    return static_cast<std::uint16_t>((whole + 0x7FFF + (whole >> 16 & 1)) >> 16);
  }
};

static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16>);

template <>
inline constexpr DType dtype_of<bfloat16> = DType::bfloat16;

namespace detail {

/// Type of the arithmetic on elements of type A.
template <class A>
struct ComputedIn {
  using type = A;
};
template <>
struct ComputedIn<bfloat16> {
  using type = float;
};

}  // namespace detail
}  // namespace lockstep
