/// \file
#include "lockstep/layers/activations/softmax.hpp"

#include "compare.hpp"

#include "unit/devices/softmax.hpp"
