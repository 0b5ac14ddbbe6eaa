/// \file
#include "lockstep/devices/cuda/ops/prelu.hpp"

#include "unit/devices/cuda/compare.hpp"

#include "unit/devices/prelu.hpp"
