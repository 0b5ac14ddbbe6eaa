// expect: lockstep::Conv3D: filters must be at least 1;
#include "lockstep/layers/convolution/conv3d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 8, 3>, ls::Conv3D<0, 3>> {};
constexpr auto count = Net::parameter_count;
