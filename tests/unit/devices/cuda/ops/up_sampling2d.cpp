/// \file
#include "lockstep/layers/up_sampling2d.hpp"

#include "unit/devices/cuda/compare.hpp"

#include "unit/devices/up_sampling2d.hpp"
