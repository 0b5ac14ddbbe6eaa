/// \file
/// Activations on the Cpu: the shared cases.
#include "compare.hpp"

#include "unit/devices/pointwise.hpp"
