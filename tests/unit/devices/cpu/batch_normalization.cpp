#include "lockstep/layers/normalization/batch_normalization.hpp"

#include "compare.hpp"

#include "unit/devices/batch_normalization.hpp"
