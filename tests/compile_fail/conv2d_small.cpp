// expect: lockstep::Conv2D: the input is smaller than the kernel; use a smaller kernel or ls::same
#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Conv2D<4, 9>> {};
constexpr auto count = Net::parameter_count;
