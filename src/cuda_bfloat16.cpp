#include "lockstep/impl/cuda_bfloat16.hpp"
