// expect: lockstep::Conv2D: the kernel size, strides and dilation must be at least 1; write
#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Conv2D<4, 3, ls::strides(0)>> {};
constexpr auto count = Net::parameter_count;
