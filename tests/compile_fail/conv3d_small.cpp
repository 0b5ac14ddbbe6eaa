// expect: lockstep::Conv3D: the input is smaller than the kernel; use a smaller kernel or ls::same
#include "lockstep/layers/convolution/conv3d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 2, 8, 3>, ls::Conv3D<4, 3>> {};
constexpr auto count = Net::parameter_count;
