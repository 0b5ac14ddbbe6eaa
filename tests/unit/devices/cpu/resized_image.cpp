/// \file
#include "lockstep/devices/host/resized_image.hpp"

#include "compare.hpp"

#include "unit/devices/resized_image.hpp"
