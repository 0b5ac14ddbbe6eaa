/// \file
/// Options shared by the normalization layers.
#pragma once

namespace lockstep {

/// Option created by `epsilon`.
struct Epsilon {
  float value = 1e-3f;
};
/// Option created by `center`.
struct Center {
  bool on = true;
};
/// Option created by `scale`.
struct Scale {
  bool on = true;
};
/// Added to the variance before the square root, for numerical stability.
constexpr Epsilon epsilon(float value) { return {value}; }
/// Whether the layer adds a trained `beta`.
constexpr Center center(bool on) { return {on}; }
/// Whether the layer multiplies by a trained `gamma`.
constexpr Scale scale(bool on) { return {on}; }

}  // namespace lockstep
