/// \file
/// Random image layers on the Cpu: the shared cases.
#include "lockstep/layers/preprocessing/augmentation.hpp"

#include "compare.hpp"

#include "unit/devices/augmentation.hpp"
