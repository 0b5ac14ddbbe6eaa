#include "lockstep/impl/cuda_float.hpp"
