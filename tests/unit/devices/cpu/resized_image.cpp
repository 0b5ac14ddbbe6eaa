/// \file
#include "lockstep/devices/host/images/resized_image.hpp"

#include "compare.hpp"

#include "unit/devices/resized_image.hpp"
