// expect: lockstep::SeparableConv2D: the input is smaller than the kernel;
#include "lockstep/layers/convolution/separable_conv2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::SeparableConv2D<4, 9>> {};
constexpr auto count = Net::parameter_count;
