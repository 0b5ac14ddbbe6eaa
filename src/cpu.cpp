#include "lockstep/impl/src_cpu.hpp"
