/// \file
/// Options of layers: values of structural types that follow the positional template arguments in
/// any order. Each is found by its type.
#pragma once

#include <string_view>
#include <type_traits>

#include "lockstep/core/type_list.hpp"

namespace lockstep {

/// Keras' padding. `same` follows TensorFlow's rule: an odd padding has its extra pixel at the
/// bottom and the right.
enum class Padding : int { valid, same };
inline constexpr Padding valid = Padding::valid, same = Padding::same;
/// Keras' name of the value, as of all enumerations in this folder.
constexpr std::string_view keras_name(Padding p) { return p == Padding::same ? "same" : "valid"; }

/// Option created by `strides`.
struct Strides {
  int height = 1, width = 1;
  bool operator==(const Strides&) const = default;
};
/// Step of a window: `strides(2)`, or `strides(2, 1)` for height and width.
constexpr Strides strides(int both) { return {both, both}; }
constexpr Strides strides(int height, int width) { return {height, width}; }

/// Option created by `dilation`.
struct Dilation {
  int height = 1, width = 1;
  bool operator==(const Dilation&) const = default;
};
/// Distance between the taps of a kernel: `dilation(2)`, or `dilation(2, 1)` for height and width.
constexpr Dilation dilation(int both) { return {both, both}; }
constexpr Dilation dilation(int height, int width) { return {height, width}; }

/// Option created by `groups`.
struct Groups {
  int value = 1;
  bool operator==(const Groups&) const = default;
};
/// Parts into which a convolution divides its channels and filters; each filter reads the channels
/// of its part only: `Conv2D<128, 3, ls::groups(32)>`.
constexpr Groups groups(int value) { return {value}; }

/// Option created by `kernel`.
struct KernelSize {
  int height = 1, width = 1;
  bool operator==(const KernelSize&) const = default;
};
/// A non-square kernel, height before width: `Conv2D<32, ls::kernel(5, 3)>`.
constexpr KernelSize kernel(int height, int width) { return {height, width}; }

/// Option created by `use_bias`.
struct UseBias {
  bool on = true;
};
/// Whether a layer has a bias; `no_bias` is `use_bias(false)`.
constexpr UseBias use_bias(bool on) { return {on}; }
inline constexpr UseBias no_bias{false};

namespace detail {

/// The option of type T among Options; `value` without one.
template <class T, auto... Options>
constexpr T option(T value) {
  [[maybe_unused]] auto visit = [&]<auto O>() {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(O)>, T>) value = O;
  };
  (visit.template operator()<Options>(), ...);
  return value;
}

/// Whether T is one of Ts.
template <class T, class... Ts>
inline constexpr bool is_any_of = (std::is_same_v<T, Ts> || ...);

}  // namespace detail
}  // namespace lockstep
