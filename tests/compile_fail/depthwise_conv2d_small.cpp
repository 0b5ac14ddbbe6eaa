// expect: lockstep::DepthwiseConv2D: the input is smaller than the kernel;
#include "lockstep/layers/convolution/depthwise_conv2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::DepthwiseConv2D<9>> {};
constexpr auto count = Net::parameter_count;
