// expect: lockstep::Conv3D: an option is not supported;
#include "lockstep/layers/convolution/conv3d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 8, 3>, ls::Conv3D<4, 3, 5>> {};
constexpr auto count = Net::parameter_count;
