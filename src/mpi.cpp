#define LOCKSTEP_IN_PARTS
#include "lockstep/impl/src_mpi.hpp"
