/// \file
/// Description of a layer's parameter. Plain values, computed at compile time.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "lockstep/core/rng.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep {

/// Fan-in and fan-out as Keras computes them: for a convolution, receptive field times channels.
struct Fans {
  int in = 1, out = 1;
};

/// Writes the initial values of a parameter. Called once, on the host, in double; the generator is
/// keyed by (seed, parameter name).
using Initializer = void (*)(Philox&, const Shape&, Fans, std::span<double>);

/// Coefficients of a penalty sum(l1 |w| + l2 w^2) that is added to the loss.
struct Penalty {
  double l1 = 0, l2 = 0;
  constexpr explicit operator bool() const { return l1 != 0 || l2 != 0; }
  bool operator==(const Penalty&) const = default;
};

/// One parameter of a layer.
/// \code
///   Parameter{.name = "kernel", .shape = shape(5408, 64), .fans = {5408, 64}, .initializer = ...}
/// \endcode
struct Parameter {
  std::string_view name;  ///< without the layer's name: "kernel"
  Shape shape;
  Fans fans;
  Initializer initializer = nullptr;
  Penalty penalty;
  bool trainable = true;  ///< false: state such as running statistics, stored apart from the
                          ///< weights
  bool present = true;    ///< false: omitted by an option such as use_bias(false)
};

}  // namespace lockstep
