#include "lockstep/impl/cpu_float.hpp"
