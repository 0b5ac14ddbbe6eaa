#include "lockstep/impl/core_reference.hpp"
