/// \file
/// Softmax on the Cpu: the shared cases.
#include "lockstep/layers/activations/softmax.hpp"

#include "compare.hpp"

#include "unit/devices/softmax.hpp"
