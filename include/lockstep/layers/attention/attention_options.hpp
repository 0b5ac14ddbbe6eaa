/// \file
/// Options shared by the attention layers.
#pragma once

#include <string_view>

#include "lockstep/layers/options.hpp"
#include "lockstep/layers/regularization/dropout.hpp"

namespace lockstep {

/// Option created by `value_dim`.
struct ValueDim {
  int value = 0;
};
/// Option created by `output_shape`.
struct OutputShape {
  int value = 0;
};
/// Option created by `causal`.
struct Causal {
  bool on = false;
};
/// Option `attention_mask`.
struct AttentionMask {
  bool on = true;
};
/// Option created by `sliding_window`.
struct SlidingWindow {
  int size = 0;  ///< 0: none
};
/// Option created by `rotary`; off if `max_wavelength` is 0.
struct Rotary {
  static constexpr std::string_view members = "max_wavelength scaling_factor pairs";
  float max_wavelength = 0, scaling_factor = 1;
  bool pairs = false;
  constexpr bool on() const { return max_wavelength > 0; }
  bool operator==(const Rotary&) const = default;
};

/// Size of each head's values; by default the size of its keys.
constexpr ValueDim value_dim(int size) { return {size}; }
/// Features of an attention layer's result; by default those of its query.
constexpr OutputShape output_shape(int features) { return {features}; }
/// A step attends to itself and the steps before it: Keras' call argument `use_causal_mask`.
inline constexpr Causal causal{true};
/// The last operand of the layer is a mask: Keras' call argument `attention_mask`. Query i attends to
/// key j if element (i, j) of the example's mask is not 0, and no other mask excludes the pair.
/// \code
///   Let<"y", From<"x", "allowed">, MultiHeadAttention<8, 64, attention_mask>>  // allowed: (steps, steps)
/// \endcode
inline constexpr AttentionMask attention_mask{};
/// A step attends to steps less than `size` away, itself included.
constexpr SlidingWindow sliding_window(int size) { return {size > 0 ? size : -1}; }
/// Rotates queries and keys by angles that grow with the step, after the projections, as in GPT-J and
/// Llama (Su et al., "RoFormer", 2021). Keras Hub's RotaryEmbedding: the elements i and i + d / 2 of
/// a head of size d turn by the angle step / scaling_factor * max_wavelength^(-2 i / d).
constexpr Rotary rotary(float max_wavelength = 10'000, float scaling_factor = 1) {
  return {max_wavelength, scaling_factor, false};
}
/// The same with the elements 2 i and 2 i + 1 as pairs: the layout of RoFormer and GPT-J.
constexpr Rotary rotary_pairs(float max_wavelength = 10'000, float scaling_factor = 1) {
  return {max_wavelength, scaling_factor, true};
}

}  // namespace lockstep
