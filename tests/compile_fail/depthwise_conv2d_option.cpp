// expect: lockstep::DepthwiseConv2D: an option is not supported; it accepts padding,
#include "lockstep/layers/convolution/depthwise_conv2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::DepthwiseConv2D<3, ls::he_normal>> {};
constexpr auto count = Net::parameter_count;
