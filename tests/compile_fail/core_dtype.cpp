// expect: lockstep::dtype_of: this C++ type is not a tensor element type
#include "lockstep/core/dtype.hpp"

constexpr auto pointer = lockstep::dtype_of<char*>;
