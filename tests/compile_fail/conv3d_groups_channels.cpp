// expect: lockstep::Conv3D: the input's channels are not a multiple of groups
#include "lockstep/layers/convolution/conv3d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 8, 3>, ls::Conv3D<4, 3, ls::groups(2)>> {};
constexpr auto count = Net::parameter_count;
