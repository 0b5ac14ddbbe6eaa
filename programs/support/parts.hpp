/// \file
/// Examples in memory, in two parts.
#pragma once

#include <lockstep/data/sources/tensors.hpp>

namespace support {

/// Examples to train on, and examples to test with.
struct Parts {
  lockstep::Tensors<float, float> train, test;
};

}  // namespace support
