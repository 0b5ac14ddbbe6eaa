/// \file
#include "lockstep/devices/host/prelu.hpp"

#include "compare.hpp"

#include "unit/devices/prelu.hpp"
