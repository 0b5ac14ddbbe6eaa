/// \file
#include "lockstep/devices/cuda/ops/resized_image.hpp"

#include "unit/devices/cuda/compare.hpp"

#include "unit/devices/resized_image.hpp"
