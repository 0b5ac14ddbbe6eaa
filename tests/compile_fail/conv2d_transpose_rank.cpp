// expect: lockstep::Conv2DTranspose: the input does not have height, width and channels;
#include "lockstep/layers/convolution/conv2d_transpose.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Conv2DTranspose<4, 3>> {};
constexpr auto count = Net::parameter_count;
