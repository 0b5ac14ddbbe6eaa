#define LOCKSTEP_IN_PARTS
#include "lockstep/impl/src_cluster.hpp"
