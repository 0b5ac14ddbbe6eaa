#include "lockstep/impl/cpu_bfloat16.hpp"
