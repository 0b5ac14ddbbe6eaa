// expect: lockstep::Reference: computes in float or double; write Reference<double>
#include "lockstep/devices/reference/device.hpp"

constexpr auto name = lockstep::Reference<int>::name;
