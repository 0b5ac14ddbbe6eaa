// expect: the text has more or fewer fields than there are values
#include "lockstep/core/error.hpp"

void fail() { throw lockstep::UsageError("{} of {} examples", 3); }
