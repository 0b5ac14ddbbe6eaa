#include "lockstep/impl/src_testing.hpp"
