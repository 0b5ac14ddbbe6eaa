/// \file
/// What a layer says of one of its parameters. Plain values, computed at compile time.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "lockstep/core/rng.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep {

/// Numbers of connections into and out of one output element, as Keras counts them.
/// A convolution's are receptive field times channels.
struct Fans {
  int in = 1, out = 1;
};

/// Writes initial values. Called once, on the host, in double; the generator is keyed by (seed,
/// parameter name).
using Initializer = void (*)(Philox&, const Shape&, Fans, std::span<double>);

/// Weights of a penalty sum(l1 * |w| + l2 * w * w) that is added to the loss.
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
  std::string_view name;  ///< without the layer: "kernel"
  Shape shape;
  Fans fans;
  Initializer initializer = nullptr;
  Penalty penalty;
  bool trainable = true;  ///< false: state such as moving statistics, kept apart from the weights
  bool present = true;    ///< false: the layer was asked to leave it out (use_bias(false))
};

}  // namespace lockstep
