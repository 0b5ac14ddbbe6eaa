// expect: lockstep::Conv3D: groups must be at least 1 and divide the filters;
#include "lockstep/layers/convolution/conv3d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 8, 4>, ls::Conv3D<6, 3, ls::groups(4)>> {};
constexpr auto count = Net::parameter_count;
