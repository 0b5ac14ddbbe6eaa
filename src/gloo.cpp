#include "lockstep/impl/src_gloo.hpp"
