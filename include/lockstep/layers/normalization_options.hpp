/// \file
/// Options that the normalizing layers share.
#pragma once

namespace lockstep {

/// Made by `epsilon`.
struct Epsilon {
  float value = 1e-3f;
};
/// Made by `center`.
struct Center {
  bool on = true;
};
/// Made by `scale`.
struct Scale {
  bool on = true;
};
/// What is added to a variance before its root is taken.
constexpr Epsilon epsilon(float value) { return {value}; }
/// Whether there is a `beta` to be added.
constexpr Center center(bool on) { return {on}; }
/// Whether there is a `gamma` to multiply by.
constexpr Scale scale(bool on) { return {on}; }

}  // namespace lockstep
