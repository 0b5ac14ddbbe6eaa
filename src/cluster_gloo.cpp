#include "lockstep/impl/cluster_gloo.hpp"
