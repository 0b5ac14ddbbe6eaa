#include "lockstep/impl/src.hpp"
