/// \file
#include "lockstep/layers/reshaping/up_sampling2d.hpp"

#include "unit/devices/cuda/compare.hpp"

#include "unit/devices/up_sampling2d.hpp"
