/// \file
#include "lockstep/devices/cuda/ops/convolution/conv2d_transpose.hpp"

#include "unit/devices/cuda/compare.hpp"

#include "unit/devices/conv2d_transpose.hpp"
