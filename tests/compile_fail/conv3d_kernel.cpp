// expect: lockstep::Conv3D: the kernel size, strides and dilation are one number or three,
#include "lockstep/layers/convolution/conv3d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 8, 3>, ls::Conv3D<4, ls::kernel(3, 3)>> {};
constexpr auto count = Net::parameter_count;
