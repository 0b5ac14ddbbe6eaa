// expect: lockstep::Conv2D: the input does not have height, width and channels; begin with
#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<64>, ls::Conv2D<4, 3>> {};
constexpr auto count = Net::parameter_count;
