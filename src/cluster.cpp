#include "lockstep/impl/src_cluster.hpp"
