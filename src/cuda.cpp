#include "lockstep/impl/src_cuda.hpp"
