#include "lockstep/impl/src_tensorboard.hpp"
