// expect: lockstep::DepthwiseConv2D: the input does not have height, width and channels;
#include "lockstep/layers/convolution/depthwise_conv2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::DepthwiseConv2D<3>> {};
constexpr auto count = Net::parameter_count;
