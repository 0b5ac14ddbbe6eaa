// expect: lockstep::shape: at most four axes; the batch is not an axis
#include "lockstep/core/shape.hpp"

const auto batch = lockstep::shape(64, 2, 28, 28, 1);
