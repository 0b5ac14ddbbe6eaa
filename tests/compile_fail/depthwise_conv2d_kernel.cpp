// expect: lockstep::DepthwiseConv2D: the kernel size, strides, dilation and depth multiplier
#include "lockstep/layers/convolution/depthwise_conv2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::DepthwiseConv2D<3, ls::depth_multiplier(0)>> {};
constexpr auto count = Net::parameter_count;
