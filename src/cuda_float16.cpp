#include "lockstep/impl/cuda_float16.hpp"
