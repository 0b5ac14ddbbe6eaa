// expect: lockstep::Conv2DTranspose: an option is not supported; it accepts padding, strides,
#include "lockstep/layers/convolution/conv2d_transpose.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Conv2DTranspose<4, 3, ls::groups(1)>> {};
constexpr auto count = Net::parameter_count;
