// expect: lockstep::dtype_of: this C++ type is no tensor element type
#include "lockstep/core/dtype.hpp"

constexpr auto pointer = lockstep::dtype_of<char*>;
