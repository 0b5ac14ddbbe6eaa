/// \file
/// Tests for NaN and infinity. Invariant: only bits are tested, since under -ffast-math the
/// compiler may assume that std::isfinite is true and std::isnan is false.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

namespace lockstep::detail {

/// The bits of a float or double without the sign. Values above `infinite_bits` are NaNs.
template <std::floating_point T>
  requires(sizeof(T) == 4 || sizeof(T) == 8)
constexpr auto unsigned_bits(T value) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  return static_cast<Bits>(std::bit_cast<Bits>(value) & (static_cast<Bits>(-1) >> 1));
}
template <std::floating_point T>
inline constexpr auto infinite_bits = sizeof(T) == 4 ? 0x7F800000ull : 0x7FF0000000000000ull;

template <std::floating_point T>
constexpr bool is_finite(T value) {
  return unsigned_bits(value) < infinite_bits<T>;
}
template <std::floating_point T>
constexpr bool is_nan(T value) {
  return unsigned_bits(value) > infinite_bits<T>;
}

}  // namespace lockstep::detail
