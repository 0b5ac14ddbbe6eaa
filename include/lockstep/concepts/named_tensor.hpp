/// \file
/// A copy of one parameter of a model and of its gradient, for callbacks.
#pragma once

#include <string>
#include <vector>

#include "lockstep/core/shape.hpp"

namespace lockstep {

/// A parameter's values and its gradient of the loss in the last step, on the host, as float.
struct NamedTensor {
  std::string name;  ///< "conv2d/kernel"
  Shape shape;
  std::vector<float> values;
  /// Empty if the parameter is not trainable, or no process has the whole gradient (ParameterServer).
  std::vector<float> gradient;
};

}  // namespace lockstep
