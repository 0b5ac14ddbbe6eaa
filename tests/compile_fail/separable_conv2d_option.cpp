// expect: lockstep::SeparableConv2D: an option is not supported; it accepts padding,
#include "lockstep/layers/convolution/separable_conv2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>,
                            ls::SeparableConv2D<4, 3, ls::kernel_regularizer(ls::L2{})>> {};
constexpr auto count = Net::parameter_count;
