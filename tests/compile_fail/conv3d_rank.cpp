// expect: lockstep::Conv3D: the input does not have depth, height, width and channels;
#include "lockstep/layers/convolution/conv3d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Conv3D<4, 3>> {};
constexpr auto count = Net::parameter_count;
